# Completion of reef(1) and reefd(8) for bash: it asks the help of the command that is typed.
# shellcheck shell=bash

_reef() { # PROGRAM
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} first command=() list help words=''
    # bash takes --size=small apart.
    [ "$prev" = = ] && prev=${COMP_WORDS[COMP_CWORD - 2]}
    [ "$cur" = = ] && prev=${COMP_WORDS[COMP_CWORD - 1]} && cur=''
    if [ "${1##*/}" = reef ]; then
        list=$("$1" help 2>/dev/null | sed -nE 's/^  ([a-z]+( [a-z]+)?)  .*/\1/p')
        first=${COMP_WORDS[1]}
        command=("$first")
        if [ "$COMP_CWORD" -eq 1 ]; then
            words="$(cut -d ' ' -f 1 <<<"$list") --help --version"
        elif grep -q "^$first " <<<"$list"; then
            command+=("${COMP_WORDS[2]}")
            [ "$COMP_CWORD" -eq 2 ] && words=$(sed -n "s/^$first //p" <<<"$list")
        fi
    fi
    if [ -z "$words" ]; then
        help=$("$1" "${command[@]}" --help-all 2>/dev/null || "$1" "${command[@]}" --help 2>/dev/null)
        case $cur in
        -*) words=$(sed -nE 's/^  (-[a-z], )?(--[a-z0-9-]+).*/\2/p' <<<"$help") ;;
        *) words=$(sed -nE "s/^  (-[a-z], )?$prev ([a-z0-9]+(\|[a-z0-9]+)+).*/\2/p" <<<"$help" | tr '|' ' ') ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -o default -F _reef reef reefd
