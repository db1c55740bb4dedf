// What rang in the lines that a pool watches, drawn from the reply of v1/incidents. Lines are whatever somebody logged:
// they are put into the page as text, and what cannot be seen in them is spelled out. Nothing here asks the daemon.
'use strict';

const incidents = (() => {
    const { make, count, span } = charts;
    const SHOWN = 6; // before the rest is asked for
    const SORTS = {
        type: 'new type of line', word: 'new word', rate: 'far more than ever', silence: 'does not come any more',
        again: 'an error again', noise: 'most lines are new',
    };
    const SEVERITIES = ['none', 'warning', 'error', 'critical'];
    const SIGNS = { none: '', warning: '△ ', error: '▲ ', critical: '✖ ' };
    const SAID = {
        normal: '✓ said: normal, never rings again', mute: '… said: muted',
        fault: '! said: a fault, rings each time',
    };
    const until = (one) => (one.muted_until ? [' until ', moment(one.muted_until, true)] : []);
    const BUTTONS = [['normal', 'Normal'], ['mute', 'Mute 7 days'], ['fault', 'Fault']];
    const TIME_OF = 'by the times at the head of lines';

    // Controls, and characters that turn or hide the text around them.
    const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
    const spelled = (character) => {
        const code = character.charCodeAt(0);
        return code < 256 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16)}`;
    };
    const printable = (text) => text.replace(UNSEEN, spelled);

    // Times of lines are shown as the lines have them, not in the zone of who looks.
    function moment(seconds, day) {
        const date = new Date(seconds * 1000);
        if (isNaN(date)) return '–'; // a log may say any number
        const text = date.toISOString(), [on, at] = text.split('T');
        return make('time', { datetime: text, title: TIME_OF }, `${day ? `${on} ` : ''}${at.slice(0, 8)}`);
    }

    function period(first, last) {
        const same = Math.floor(first / 86400) === Math.floor(last / 86400);
        if (Math.floor(first) === Math.floor(last)) return [moment(first, true)];
        return [moment(first, true), ' – ', moment(last, !same)];
    }

    // `new` counts bytes of UTF-8.
    function lineOf(event) {
        const bytes = new TextEncoder().encode(event.first_line), [at, many] = event.new || [0, 0];
        const decoder = new TextDecoder('utf-8', { ignoreBOM: true }); // that is: it is kept
        const part = (from, to) => printable(decoder.decode(bytes.subarray(from, to)));
        if (many === 0 || at + many > bytes.length) return make('code', { class: 'line' }, part(0));
        return make('code', { class: 'line' }, part(0, at), make('mark', {}, part(at, at + many)), part(at + many));
    }

    const facts = (...children) => make('p', { class: 'facts' }, ...children);
    const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

    function factsOf(event) {
        const lines = event.sort === 'silence' ? 'this was its last line' : plural(event.count, 'line', 'lines');
        const where = printable(event.file || event.source);
        return facts(make('strong', {}, SORTS[event.sort] || event.sort), ` · ${lines} · ${where}`);
    }

    function eventOf(event, isShown) {
        const rare = `severity ${event.severity} · ${event.bits.toFixed(1)} bits`;
        const where = `at byte ${count(event.offset)}${event.file ? ` of ${printable(event.file)}` : ''}`;
        const node = make('li', {}, ...(isShown ? [] : [lineOf(event), factsOf(event)]));
        node.append(facts(...period(event.first_time, event.last_time), ` · ${rare} · ${where}`));
        if (event.nearest)
            node.append(facts('most like: '), make('code', { class: 'line' }, printable(event.nearest)));
        return node;
    }

    function worst(events) {
        return SEVERITIES[Math.max(0, ...events.map((event) => SEVERITIES.indexOf(event.severity)))];
    }

    function headOf(one) {
        const severity = worst(one.events), isOpen = one.state === 'open', lasted = one.last_time - one.first_time;
        return make('p', { class: 'head' }, make('strong', {}, `#${one.incident}`), ' ',
            make('span', { class: 'badge', 'data-kind': isOpen ? 'bad' : '' }, isOpen ? '● open' : '■ ended'), ' ',
            make('span', { class: `severity ${severity}` }, `${SIGNS[severity]}severity ${severity}`), ' ',
            make('span', {}, ...period(one.first_time, one.last_time), lasted >= 1 ? ` (${span(lasted)})` : ''), ' ',
            make('span', { class: 'decision' }, SAID[one.decision] || '', ...until(one)));
    }

    function buttonOf(one, decision, text, onDecide) {
        const label = `${text}: incident ${one.incident}`;
        const button = make('button', { type: 'button', 'data-decision': decision, 'aria-label': label }, text);
        button.addEventListener('click', () => void onDecide(one.incident, button));
        return button;
    }

    // One incident. It is redrawn only when the reply has changed, so that opened details stay open.
    function item(one, onDecide) {
        const all = one.events.length + one.more_events;
        const node = make('li', { 'data-incident': one.incident, 'data-state': one.state }, headOf(one));
        if (one.events.length) node.append(lineOf(one.events[0]), factsOf(one.events[0]));
        const kept = make('details', {}, make('summary', {}, all === 1 ? 'details' : `all ${count(all)} events`),
            make('ol', {}, ...one.events.map((event) => eventOf(event, all === 1))));
        if (one.more_events) kept.append(facts(`${count(one.more_events)} more were not kept.`));
        const buttons = BUTTONS.map(([decision, text]) => buttonOf(one, decision, text, onDecide));
        node.append(kept, make('p', { class: 'row' }, ...buttons), make('p', { class: 'outcome', role: 'status' }));
        return node;
    }

    const known = new Map(); // by number: what was drawn, and of what

    function drawn(one, onDecide) {
        const text = JSON.stringify(one), before = known.get(one.incident);
        if (before && before.text === text) return before.node;
        const node = item(one, onDecide);
        if (before) {
            const was = before.node.querySelector('.outcome');
            node.querySelector('details').open = before.node.querySelector('details').open;
            node.querySelector('.outcome').replaceWith(was);
        }
        known.set(one.incident, { text, node });
        return node;
    }

    // Nodes that stay are not touched: one that is taken out and put in again loses the focus.
    function arrange(list, nodes) {
        for (const node of [...list.children]) if (!nodes.includes(node)) node.remove();
        nodes.forEach((node, i) => {
            if (list.children[i] !== node) list.insertBefore(node, list.children[i] || null);
        });
    }

    function focused() {
        const node = document.activeElement, owner = node && node.closest('[data-incident]');
        if (!owner) return null;
        const what = node.dataset.decision ? `[data-decision=${node.dataset.decision}]` : 'summary';
        return `[data-incident="${owner.dataset.incident}"] ${what}`;
    }

    // Those that are open, then the others, each the latest first.
    function show(list, more, all, onDecide) {
        const focus = focused(), latest = all.slice().reverse(), isOpen = (one) => one.state === 'open';
        const ordered = [...latest.filter(isOpen), ...latest.filter((one) => !isOpen(one))];
        const nodes = ordered.map((one) => drawn(one, onDecide));
        arrange(list, nodes.slice(0, SHOWN));
        arrange(more.querySelector('ol'), nodes.slice(SHOWN));
        more.hidden = nodes.length <= SHOWN;
        more.querySelector('summary').textContent = `${count(nodes.length - SHOWN)} more`;
        const numbers = new Set(all.map((one) => one.incident));
        for (const number of known.keys()) if (!numbers.has(number)) known.delete(number);
        if (focus && !document.activeElement.closest('[data-incident]')) document.querySelector(focus)?.focus();
    }

    function counts(watch) {
        const events = `${count(watch.in_events)} in events + ${count(watch.suppressed)} suppressed`;
        const early = `${count(watch.learning)} of the usual ones came while their source was not judged yet.`;
        const rang = `${plural(watch.rung, 'incident', 'incidents')} rang, ${count(watch.open)} open.`;
        const lines = `${count(watch.lines)} lines read = ${count(watch.usual)} usual + ${events}.`;
        return `${lines} ${rang} ${watch.learning ? early : ''}`;
    }

    function say(number, kind, text) {
        const node = known.get(number)?.node.querySelector('.outcome');
        if (!node) return;
        node.dataset.kind = kind;
        node.textContent = text;
    }

    return { show, counts, say, printable };
})();
