// What is asked of the daemon, and when: the status comes by itself once a second, records of the pool are read
// again after a commit. Everything that comes from outside is put into the page as text.
'use strict';

(() => {
    const { make, bytes, count, fixed, percent, span } = charts;
    const $ = (id) => document.getElementById(id);
    const STALE_MS = 5000, SILENT_MS = 15000, RECORDS_MS = 5000, FORGETTING_MS = 60000, SLICE_PAUSE_MS = 300, HISTORY_MAX = 600, COMMITS_MAX = 8, EVENTS = 60, VISITS = 1000, KINDS = 60, INCIDENTS = 100, MUTE_S = 7 * 86400;

    let status = null, seenAt = 0, opened = Date.now(), refused = '';
    let records = { commit: -1, at: 0, busy: false }, forgetting = { commit: -1, at: 0, complete: false, busy: false };
    const history = [], commits = [];

    // ---- asking ----------------------------------------------------------------------------------

    function headers() {
        const token = $('token').value;
        return token ? { Authorization: `Bearer ${token}` } : {};
    }

    async function failure(reply) {
        try {
            return (await reply.json()).error.message;
        } catch {
            return `the daemon replied ${reply.status}`;
        }
    }

    async function get(path) {
        const reply = await fetch(path, { headers: headers(), signal: AbortSignal.timeout(30000) });
        if (!reply.ok) throw new Error(await failure(reply));
        return reply.json();
    }

    // Server-sent events by fetch, because an EventSource cannot send a token.
    async function listen(signal) {
        const reply = await fetch('v1/events', { headers: headers(), signal });
        if (!reply.ok) throw new Error(await failure(reply));
        const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
        refused = '';
        for (let rest = ''; ;) {
            const { value, done } = await reader.read();
            if (done) return;
            rest += value;
            for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
                const lines = rest.slice(0, end).split('\n');
                const data = lines.filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n');
                rest = rest.slice(end + 2);
                if (data && lines.includes('event: status')) onStatus(JSON.parse(data));
            }
        }
    }

    let listening = new AbortController(), listeningSince = opened;

    async function listenForever() {
        for (;;) {
            listening = new AbortController();
            listeningSince = Date.now();
            try {
                await listen(listening.signal);
            } catch (error) {
                if (error.name !== 'AbortError' && error.name !== 'TypeError') refused = error.message;
            }
            await new Promise((resolve) => setTimeout(resolve, 1000));
        }
    }

    // A connection can be lost without either end noticing: silence for so long ends it, and a new one is made.
    function endSilence() {
        if (Date.now() - Math.max(seenAt, listeningSince) > SILENT_MS) listening.abort();
    }

    // ---- now -------------------------------------------------------------------------------------

    function onStatus(next) {
        status = next;
        seenAt = Date.now();
        document.body.dataset.updates = Number(document.body.dataset.updates || 0) + 1;
        history.push({ at: status.unix_ms / 1000, rate: status.bytes_per_s });
        if (history.length > HISTORY_MAX) history.shift();
        noteCommit(status.last_commit);
        showStatus();
        charts.rate($('rate'), history);
        void readRecords();
        void readForgetting();
    }

    const lossText = (value) => fixed(value, 3);

    function tile(name, value, more) {
        return make('div', {}, make('dt', {}, name), make('dd', {}, value, ...(more ? [' ', make('small', {}, more)] : [])));
    }

    function showTiles() {
        const known = status.sources.map((source) => source.lag_bytes).filter((lag) => lag !== null);
        const loss = status.bits_per_byte, last = status.last_bits_per_byte;
        $('tiles').replaceChildren(
            tile('loss, bits per byte', lossText(loss), last ? `last batch ${lossText(last)}` : ''),
            tile('throughput', `${bytes(status.bytes_per_s)}/s`),
            tile('lag', known.length ? bytes(known.reduce((a, b) => a + b, 0)) : '–', `queue ${bytes(status.queue_bytes)}`),
            tile('stream', bytes(status.stream_bytes), `step ${count(status.step)}`),
            tile('experts', count(status.experts), `generation ${status.generation} open`),
            ...(status.kinds > 1 ? [tile('kinds', count(status.kinds), `${status.kind_name || status.kind} is learned`)] : []),
            tile('memory', bytes(status.resident_bytes)),
            ...(status.context_memory ? [tile('context memory', percent(status.context_memory.used_share || 0, 0), `in use of ${bytes(status.context_memory.bytes)}`)] : []),
            tile('pool file', bytes(status.pool_file_bytes), status.facts ? `${bytes(status.facts.free_bytes)} free` : ''));
    }

    function showSources() {
        $('sources').tBodies[0].replaceChildren(...status.sources.map((source) => make('tr', {},
            make('td', { title: source.name }, source.name), make('td', {}, bytes(source.cursor)), make('td', {}, bytes(source.lag_bytes)),
            make('td', {}, `${bytes(source.bytes_per_s)}/s`), make('td', {}, lossText(source.bits_per_byte)),
            make('td', {}, source.ended ? '■ ended' : source.sits_out ? '… idle' : '▶ reading'))));
    }

    // What the open generation's context memory holds, and which inputs of its mixer were worth most.
    function showMemory() {
        const memory = status.context_memory;
        $('memory').hidden = !memory;
        if (!memory) return;
        const used = (part, all) => (all ? percent(part / all, 1) : '–');
        $('memory-note').textContent = `Generation ${status.generation} has learned ${bytes(memory.learned_bytes)} and takes ${bytes(memory.bytes)} of ${bytes(memory.bytes_max)}; ${used(memory.cells_used, memory.cells)} of its cells and ${used(memory.trees_used, memory.trees)} of its trees are in use. Share: the part of an input in the log odds, since the daemon began.`;
        const inputs = memory.inputs.slice().sort((a, b) => b.share - a.share), most = Math.max(inputs[0].share, 1e-9);
        $('inputs').tBodies[0].replaceChildren(...inputs.map((input) => {
            const bar = make('span', { class: 'bar', 'aria-hidden': 'true' });
            bar.style.width = `${(6 * input.share / most).toFixed(2)}rem`;
            return make('tr', {}, make('td', {}, input.name), make('td', {}, bar, percent(input.share, 1)), make('td', {}, percent(input.hits, 0)));
        }));
    }

    // The processes that train the pool together, as of the last commit.
    function showRanks() {
        const ranks = status.ranks;
        $('ranks').hidden = !ranks;
        if (!ranks) return;
        $('ranks-note').textContent = `${count(ranks.count)} ${ranks.count === 1 ? 'process trains' : 'processes train'} this pool; the last epoch is ${count(ranks.epoch)}. Shares are of the time since the start, as of that commit. Behind: how much less it waited than the one that waited longest.`;
        $('ranks-table').tBodies[0].replaceChildren(...ranks.ranks.map((one) => {
            const all = Math.max(one.computing_s + one.packing_s + one.waiting_s + one.telling_s + one.committing_s, 1e-9);
            return make('tr', {}, make('td', {}, count(one.rank)), make('td', {}, one.host), make('td', {}, `${bytes(one.sent_bytes_per_s)}/s`),
                make('td', {}, percent(one.computing_s / all, 0)), make('td', {}, percent(one.waiting_s / all, 0)),
                make('td', {}, span(one.lag_s)), make('td', {}, bytes(one.memory_peak_bytes)));
        }));
    }

    // How far a rank that learns apart is from the next join, whom it waits for, and the last join.
    function showJoins() {
        const joins = status.joins;
        $('joins').hidden = !joins;
        if (!joins) return;
        const missing = joins.waits_for.length ? ` It waits for rank ${joins.waits_for.join(', ')}.` : '';
        const lost = joins.left_out_bytes ? ` ${bytes(joins.left_out_bytes)} of text were left out.` : '';
        $('joins-note').textContent = `Rank ${joins.rank} of ${count(joins.ranks)} learns apart: ${bytes(joins.since_bytes)} of ${bytes(joins.every_bytes)} to the next join. ${count(joins.kinds)} ${joins.kinds === 1 ? 'kind' : 'kinds'} came from other ranks; ${bytes(joins.sent_bytes)} sent, ${bytes(joins.received_bytes)} received in all.${missing}${lost}`;
        const last = joins.last;
        $('joins-table').tBodies[0].replaceChildren(...(last ? [make('tr', {}, make('td', {}, count(joins.count)), make('td', {}, new Date(last.unix_ms).toLocaleString()),
            make('td', {}, last.seconds === null ? '–' : span(last.seconds)), make('td', {}, bytes(last.sent_bytes)), make('td', {}, bytes(last.received_bytes)))] : []));
    }

    function showStatus() {
        $('pool').textContent = status.pool;
        $('footer').textContent = `reefd ${status.version}, process ${status.pid}, up ${span(status.uptime_s)}, ${status.threads} ${status.threads === 1 ? 'thread' : 'threads'}, ${status.kernels}`;
        showTiles();
        showSources();
        showWatch();
        showMemory();
        showRanks();
        showJoins();
        showGrowthFacts();
        showState();
    }

    const SIGNS = { training: '▶', waiting: '…', paused: '❚❚', draining: '▽', ending: '■' };

    // Problems are shown as text, at one place.
    function showState() {
        const age = seenAt ? (Date.now() - seenAt) / 1000 : null, stale = Date.now() - (seenAt || opened) > STALE_MS;
        document.body.classList.toggle('stale', stale);
        $('age').textContent = age === null ? 'no update yet' : `last update ${span(age)} ago`;
        let alert = refused;
        if (!alert && stale) alert = age === null ? 'the daemon does not answer' : `no update for ${span(age)}: the daemon has ended, hangs, or cannot be reached`;
        if (!alert && status && status.commit_error) alert = `commits fail: ${status.commit_error}`;
        if (!alert && status && status.scrub && status.scrub.damage) alert = `damage: ${status.scrub.damage}`;
        if ($('alert').textContent !== alert) $('alert').textContent = alert;
        $('alert').hidden = !alert;
        const text = stale || !status ? (stale ? '✕ no answer' : 'connecting') : `${SIGNS[status.state] || '•'} ${status.state}`;
        if ($('state').textContent !== text) $('state').textContent = text;
        $('state').dataset.kind = stale || (status && status.commit_error) ? 'bad' : 'good';
        document.title = `${stale ? '✕ ' : ''}Reef${status ? ` – ${status.pool}` : ''}`;
    }

    // ---- commits ---------------------------------------------------------------------------------

    function noteCommit(commit) {
        if (commits.length && commits[0].number === commit.number) return;
        commits.unshift(commit);
        if (commits.length > COMMITS_MAX) commits.pop();
        $('commits').tBodies[0].replaceChildren(...commits.map((one) => make('tr', {},
            make('td', {}, count(one.number)), make('td', {}, new Date(one.unix_ms).toLocaleTimeString()), make('td', {}, count(one.step)),
            make('td', {}, one.ms ? `${one.ms.toFixed(0)} ms` : '–'), make('td', { title: one.root }, one.root.slice(0, 10)))));
    }

    // ---- records of the pool ---------------------------------------------------------------------

    let generations = [], series = [], events = [], kinds = { kinds: [], visits: [] }, rang = null;

    async function readRecords() {
        const commit = status.last_commit.number;
        if (records.busy || commit === records.commit || Date.now() - records.at < RECORDS_MS) {
            showLoss(); // with what has come since
            return;
        }
        records.busy = true;
        try {
            series = (await get(`v1/series?points=${Math.min(800, Math.max(200, innerWidth))}`)).points;
            events = (await get('v1/timeline?last=1000')).events;
            await readIncidents();
            generations = (await get('v1/generations')).generations;
            showLoss();
            showTimeline();
            kinds = await get(`v1/kinds?visits=${VISITS}`);
            showGrowth();
            showKinds();
            await readUsage();
            records.commit = commit;
        } catch (error) {
            console.warn(error.message); // the next status tries again
        }
        records.at = Date.now();
        records.busy = false;
    }

    function showLoss() {
        const points = series.slice(), last = points[points.length - 1];
        const loss = status.last_bits_per_byte;
        if (last && loss !== null && status.stream_bytes > last.stream_bytes)
            points.push({ stream_bytes: status.stream_bytes, loss: status.bits_per_byte, low: loss, high: loss });
        $('loss-note').textContent = points.length
            ? `Bits per byte before it was learned: mean, and the range of batches behind it. Now ${lossText(status.bits_per_byte)} at ${bytes(status.stream_bytes)}.`
            : 'Nothing has been committed yet.';
        if (!points.length) return;
        charts.loss($('loss'), points, events);
        charts.key($('loss-key'));
    }

    const QUIET = ['event', 'unix_ms', 'step', 'stream_bytes', 'generation'];

    function detailsOf(event) {
        if (event.event === 'incident') {
            const what = event.state === 'open' ? 'rings' : 'has ended';
            return `incident ${event.incident} ${what}: ${incidents.printable(event.title)}`;
        }
        return Object.entries(event).filter(([name, value]) => !QUIET.includes(name) && value !== null)
            .map(([name, value]) => `${name.replaceAll('_', ' ')} ${typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value}`).join(', ');
    }

    function showTimeline() {
        const rows = events.slice(-EVENTS).reverse().map((event) => {
            const details = detailsOf(event);
            return make('li', {}, make('time', { datetime: new Date(event.unix_ms).toISOString() }, new Date(event.unix_ms).toLocaleString()),
                ' ', make('strong', {}, event.event), details ? `: ${details} ` : ' ', make('span', { class: 'where' }, `at ${bytes(event.stream_bytes)}`));
        });
        $('timeline').replaceChildren(...rows);
    }

    // ---- incidents -------------------------------------------------------------------------------

    // Hidden where the pool does not watch lines.
    function showWatch() {
        $('incidents').hidden = !status.watch;
        if (!status.watch) return;
        $('incidents-note').textContent = incidents.counts(status.watch);
        const missing = rang ? Math.min(status.watch.rung, INCIDENTS) - rang.length : 0;
        $('incidents-missing').hidden = !rang || (rang.length > 0 && missing <= 0);
        $('incidents-missing').textContent = missing > 0
            ? `${count(missing)} more will be listed with the next commit.`
            : 'Nothing has rung.';
    }

    async function readIncidents() {
        if (!status.watch) return;
        rang = (await get(`v1/incidents?last=${INCIDENTS}`)).incidents;
        incidents.show($('incidents-list'), $('incidents-more'), rang, decide);
        showWatch();
    }

    const DECIDED = { normal: 'is normal: it never rings again', mute: 'is muted for 7 days', fault: 'is a fault: it rings each time' };

    // A button stays where it is and keeps the focus while it waits.
    async function decide(number, button) {
        const { decision } = button.dataset;
        if (button.ariaDisabled === 'true') return;
        if (!hasToken()) {
            incidents.say(number, 'bad', '✕ Nothing was done: type the token under Commands first.');
            return;
        }
        button.ariaDisabled = 'true';
        incidents.say(number, '', `${button.textContent}: waiting for the end of a step …`);
        try {
            const time = decision === 'mute' ? { for_s: MUTE_S } : {};
            const { types } = await send({ command: 'incident', incident: number, decision, ...time });
            const lines = `${count(types)} ${types === 1 ? 'type' : 'types'} of lines`;
            incidents.say(number, 'good', `✓ Incident ${number} ${DECIDED[decision]}. That holds for ${lines}.`);
            records.at = 0; // look at once
        } catch (error) {
            incidents.say(number, 'bad', `✕ ${button.textContent} failed: ${error.message}`);
        }
        button.ariaDisabled = 'false';
    }

    function showGrowth() {
        $('growth').querySelector('.of-memory').hidden = !status.context_memory;
        const most = Math.max(1, ...generations.map((one) => one.experts));
        $('growth').tBodies[0].replaceChildren(...generations.map((one) => {
            const bar = make('span', { class: `bar${one.sealed ? '' : ' open'}`, 'aria-hidden': 'true' });
            bar.style.width = `${(4 * one.experts / most).toFixed(2)}rem`;
            return make('tr', { 'data-generation': one.generation }, make('td', {}, one.generation),
                make('td', {}, one.sealed ? `■ sealed ${one.dtype}` : '● open'),
                make('td', {}, bar, count(one.experts)), make('td', {}, bytes(one.opened_at)),
                make('td', { 'data-fact': 'used' }), make('td', { 'data-fact': 'uneven' }),
                ...(status.context_memory ? [make('td', { 'data-fact': 'memory' })] : []));
        }));
        $('growth-note').textContent = `${count(generations.reduce((sum, one) => sum + one.experts, 0))} experts in ${generations.length} generations, all layers.`;
        fillGenerations();
        showGrowthFacts();
    }

    function showGrowthFacts() {
        if (!status.facts) return;
        for (const one of status.facts.generations) {
            const row = $('growth').querySelector(`tr[data-generation="${one.generation}"]`);
            if (!row) continue;
            row.querySelector('[data-fact="used"]').textContent = percent(one.used_share, 0);
            row.querySelector('[data-fact="uneven"]').textContent = fixed(one.unevenness, 2);
            const memory = row.querySelector('[data-fact="memory"]');
            if (!memory) continue;
            memory.textContent = bytes(one.memory_learned_bytes);
            if (one.memory_bytes !== null) memory.title = `${bytes(one.memory_bytes)} of memory, ${percent(one.memory_used_share, 0)} in use`;
        }
    }

    // Those that learned last, by number; with one kind there is nothing to tell apart.
    function showKinds() {
        const known = kinds.kinds, there = Boolean(status.context_memory) && known.length > 1;
        $('kinds').hidden = !there;
        $('kind-row').hidden = !there;
        if (!there) return;
        const shown = known.slice().sort((a, b) => b.learned_at - a.learned_at).slice(0, KINDS).sort((a, b) => a.kind - b.kind);
        const returned = known.filter((one) => one.visits > 1).length, current = known.find((one) => one.learning);
        $('kinds-note').textContent = `${known.length} kinds; ${returned} came back. ${current ? `${current.name || `Kind ${current.kind}`} is being learned. ` : ''}Loss: bits per byte of the first and the last visit, before they were learned.${shown.length < known.length ? ` Shown are the ${shown.length} that learned last.` : ''}`;
        const end = Math.max(1, status.stream_bytes), of = new Map(shown.map((one) => [one.kind, []]));
        for (const visit of kinds.visits) if (of.has(visit.kind)) of.get(visit.kind).push(visit);
        $('kinds-table').tBodies[0].replaceChildren(...shown.map((one) => make('tr', { class: one.learning ? 'learning' : undefined },
            make('td', {}, one.kind), make('td', { title: one.name || undefined }, one.name || '–'), make('td', {}, charts.strip(of.get(one.kind), end)),
            make('td', {}, bytes(one.learned_bytes)), make('td', {}, count(one.visits)), make('td', {}, fixed(one.first_bits_per_byte, 3)),
            make('td', {}, fixed(one.last_bits_per_byte, 3)), make('td', {}, one.learning ? '▶ learning' : one.open ? '● open' : ''))));
    }

    // ---- usage -----------------------------------------------------------------------------------

    let usage = { layers: [] };

    function fill(select, values, chosen) {
        if (select.options.length === values.length) return;
        select.replaceChildren(...values.map((value) => make('option', { value }, value)));
        select.value = chosen;
    }

    // The open generation is chosen, and stays so when the next one opens, until another one is asked for.
    function fillGenerations() {
        const select = $('usage-generation'), there = generations.map((one) => String(one.generation));
        const follows = !select.options.length || select.selectedIndex === select.options.length - 1;
        fill(select, there, follows || !there.includes(select.value) ? there[there.length - 1] : select.value);
    }

    async function readUsage() {
        usage = await get(`v1/usage?generation=${$('usage-generation').value}`);
        fill($('usage-layer'), usage.layers.map((layer) => String(layer.layer)), usage.layers.length ? String(usage.layers[0].layer) : '');
        showUsage();
    }

    function showUsage() {
        const layer = usage.layers.find((one) => String(one.layer) === $('usage-layer').value);
        $('usage-note').textContent = layer
            ? `${layer.used_percent.toFixed(1)} % of ${count(layer.experts)} experts were chosen, unevenness ${layer.unevenness.toFixed(3)} nats (0: all alike), ${count(layer.selections)} selections. How many experts were chosen how often:`
            : '';
        if (layer) charts.histogram($('usage'), layer);
        else $('usage').replaceChildren();
    }

    $('usage-generation').addEventListener('change', () => void readUsage().catch((error) => { $('usage-note').textContent = error.message; }));
    $('usage-layer').addEventListener('change', showUsage);
    addEventListener('resize', showUsage);

    // ---- forgetting ------------------------------------------------------------------------------

    function showForgetting(matrix) {
        $('forgetting-note').textContent = matrix.columns.length
            ? `Bits per byte of each state on what each kind had learned last when its generation was sealed, as of commit ${count(matrix.commit)}.${matrix.complete ? '' : ' Being measured …'}`
            : 'No memory has learned a text yet.';
        if (matrix.columns.length) charts.heatMap($('forgetting'), $('forgetting-scale'), matrix);
    }

    // A matrix that is not complete is being measured while it is asked for.
    async function readForgetting() {
        const rested = Date.now() - forgetting.at > FORGETTING_MS || generations.length !== forgetting.generations;
        if (forgetting.busy || (forgetting.complete && (!rested || forgetting.commit === status.last_commit.number))) return;
        forgetting.busy = true;
        try {
            let matrix = await get('v1/forgetting');
            for (; !matrix.complete; matrix = await get('v1/forgetting')) {
                showForgetting(matrix);
                await new Promise((resolve) => setTimeout(resolve, SLICE_PAUSE_MS));
            }
            showForgetting(matrix);
            forgetting.complete = matrix.complete;
            forgetting.commit = matrix.commit;
            forgetting.generations = generations.length;
        } catch (error) {
            $('forgetting-note').textContent = error.message;
        }
        forgetting.at = Date.now();
        forgetting.busy = false;
    }

    // ---- commands --------------------------------------------------------------------------------

    function outcome(kind, text) {
        $('outcome').dataset.kind = kind;
        $('outcome').textContent = text;
    }

    const COMMANDS = {
        seal: () => ({ ask: `Seal generation ${status ? status.generation : ''}? Not a bit of it changes again.`, body: { command: 'seal' },
                       said: (reply) => (reply.task ? `✓ Task ${reply.task} begins.` : `✓ Generation ${reply.sealed} is sealed as ${reply.dtype}, ${reply.generation} is open.`) }),
        grow: () => ({ ask: `Grow generation ${status ? status.generation : ''} to side ${$('side').value}? It cannot be made smaller again.`,
                       body: { command: 'grow', side: Number($('side').value) },
                       said: (reply) => `✓ Generation ${reply.generation} has side ${reply.side}: ${count(reply.experts_open)} experts of ${count(reply.experts)}.` }),
        snapshot: () => ({ body: { command: 'snapshot', name: $('name').value },
                           said: (reply) => `✓ Snapshot ${reply.name} is of commit ${count(reply.commit)}, step ${count(reply.step)}.` }),
        kind_name: () => ({ body: { command: 'kind_name', kind: Number($('kind').value), name: $('kind-name').value },
                            said: (reply) => (reply.name ? `✓ Kind ${reply.kind} is called ${reply.name}.` : `✓ Kind ${reply.kind} has no name.`) }),
    };

    function hasToken() {
        if ($('token').value) return true;
        outcome('bad', '✕ Nothing was done: type the token first.');
        $('token').focus();
        return false;
    }

    async function send(body) {
        const reply = await fetch('v1/command', { method: 'POST', headers: { ...headers(), 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
        if (!reply.ok) throw new Error(await failure(reply));
        return reply.json();
    }

    async function run(button) {
        const command = COMMANDS[button.dataset.command]();
        if (!hasToken()) return;
        if (command.ask && !confirm(command.ask)) {
            outcome('', 'Nothing was done.');
            return;
        }
        button.disabled = true;
        outcome('', `${button.textContent}: waiting for the end of a step …`);
        try {
            outcome('good', command.said(await send(command.body)));
            records.at = 0; // look at once
        } catch (error) {
            outcome('bad', `✕ ${button.textContent} failed: ${error.message}`);
        }
        button.disabled = false;
    }

    for (const button of document.querySelectorAll('[data-command]')) button.addEventListener('click', () => void run(button));
    $('commands').addEventListener('submit', (event) => event.preventDefault());
    $('token').addEventListener('change', () => { if (refused) listening.abort(); });

    setInterval(() => { showState(); endSilence(); }, 500);
    void listenForever();
})();
