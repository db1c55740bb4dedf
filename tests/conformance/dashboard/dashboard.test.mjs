// The dashboard of a reefd that trains, in a real Chromium: what it shows agrees with what the routes answer, it
// follows the daemon by itself, and it can be used on a phone, in the dark, with a keyboard, and while the daemon
// does not answer.
//
// usage: REEF=... REEFD=... CHROMIUM=... node --test dashboard.test.mjs
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { appendFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { chromium } from 'playwright-core';

const { REEF, REEFD, CHROMIUM, MPIRUN } = process.env;
const TOKEN = '0123456789abcdef0123456789abcdef', WAIT = { timeout: 120000 };
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const MODEL = ['--layers', '2', '--d-model', '16', '--attention-heads', '2', '--context', '16',
    '--batch', '4', '--heads', '2', '--topk', '2', '--d-key', '8', '--side', '6',
    '--boundaries', 'given', '--memory', '4M'];

const directory = mkdtempSync(join(tmpdir(), 'reef-dashboard-'));
const defaultPool = join(directory, 'pool'), pool = defaultPool, faults = [], asked = [];
let daemon, address, context, page;

// Words in a random order, as everywhere in these tests; more of them than is ever waited for.
function writeText(path, bytes) {
    const text = Buffer.alloc(bytes);
    for (let i = 0, state = 1; i < bytes; i++) {
        if (i % 4 === 0) state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        const word = state >>> 27;
        text[i] = i % 4 === 3 ? 32 : 97 + (word * 3 + (i % 4) * (1 + (word % 2))) % 8;
    }
    writeFileSync(path, text);
}

// Requests of five hours. In between an error whose line would do harm as HTML or on a terminal, and a new word; the last
// line is an error that nothing comes after, so that its incident stays open.
const HARMFUL = 'error: <script>document.title = "taken over"</script><img src=x onerror="alert(1)"> \x1b[31mred\x1b[0m \u202edesrever';

function writeLog(path) {
    const lines = [], begin = Date.UTC(2026, 10, 1) / 1000;
    const add = (second, message) => lines.push(`${new Date((begin + second) * 1000).toISOString().slice(0, 19)} web app[${100 + second % 7}]: ${message}\n`);
    for (let i = 0; i < 1800; i++) {
        add(10 * i, `request ${i} of user${i * 7 % 13} took ${i * 31 % 97} ms`);
        if (i === 700) add(10 * i + 1, HARMFUL);
        if (i === 1500) add(10 * i + 1, 'replica is in doubt');
        if (i % 4 === 3) add(10 * i + 2, 'replica is in sync');
    }
    add(18000, 'fatal: disk sda1 is gone');
    writeFileSync(path, lines.join(''));
    return lines.length;
}

async function start(listen, pool = defaultPool, source = join(directory, 'text')) {
    daemon = spawn(REEFD, ['--pool', pool, '--source', source, '--stay', '--http', listen, '--http-token',
        join(directory, 'token'), '--commit-steps', '20', '--quiet'], { stdio: ['ignore', 'inherit', 'inherit'] });
    await answers(pool);
}

async function answers(pool) {
    for (;;) {
        try {
            address = JSON.parse(execFileSync(REEF, ['status', pool, '--json'], { stdio: ['ignore', 'pipe', 'ignore'] })).http;
            if (address) return;
        } catch { /* not yet */ }
        assert.equal(daemon.exitCode, null, 'reefd has ended');
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
}

const ended = () => new Promise((resolve) => (daemon.exitCode === null ? daemon.once('exit', resolve) : resolve(daemon.exitCode)));
const ask = async (path) => (await fetch(`http://${address}/v1/${path}`)).json();
const command = async (body) => (await fetch(`http://${address}/v1/command`,
    { method: 'POST', headers: { Authorization: `Bearer ${TOKEN}` }, body: JSON.stringify(body) })).json();
const text = (selector) => page.locator(selector).innerText();
const data = (selector, name) => page.locator(selector).getAttribute(`data-${name}`);
const until = (condition, argument) => page.waitForFunction(condition, argument, WAIT);
const says = (id, part) => until(([where, what]) => document.getElementById(where).textContent.includes(what), [id, part]);

before(async () => {
    execFileSync(REEF, ['init', pool, ...MODEL]);
    writeText(join(directory, 'text'), 40000000);
    writeFileSync(join(directory, 'token'), `${TOKEN}\n`, { mode: 0o600 });
    await start('0');
    context = await chromium.launchPersistentContext(join(directory, 'profile'), { executablePath: CHROMIUM, headless: true, args: FLAGS });
    page = await context.newPage();
    page.on('pageerror', (error) => faults.push(error.message));
    page.on('console', (message) => message.type() === 'error' && faults.push(message.text()));
    page.on('request', (request) => asked.push(request.url()));
    page.on('dialog', (dialog) => dialog.accept());
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.goto(`http://${address}/`);
});

after(async () => {
    await context?.close();
    if (daemon && daemon.exitCode === null) {
        daemon.kill('SIGCONT');
        daemon.kill('SIGKILL');
        await ended();
    }
    rmSync(directory, { recursive: true, force: true });
});

test('it loads and draws the loss that the pool holds', async () => {
    await until(() => Number(document.getElementById('loss').dataset.points) > 2);
    assert.equal(await text('#pool'), pool);
    assert.ok(await page.locator('#loss canvas').count() > 0);
    assert.match(await text('#loss-note'), /Bits per byte .* Now \d+\.\d+/);
    // Something was painted in the colour of the curve, not only axes.
    const painted = await page.evaluate(() => {
        const canvas = document.querySelector('#loss canvas'), bytes = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        let blue = 0;
        for (let i = 0; i < bytes.length; i += 4) blue += bytes[i + 3] > 200 && bytes[i + 2] > 120 && bytes[i] < 60;
        return blue;
    });
    assert.ok(painted > 50, `${painted} points of the curve`);
    assert.equal(await page.locator('#sources tbody tr').count(), 1);
    assert.equal(await page.locator('#incidents').isHidden(), true); // it watches no lines
});

test('it follows the daemon by itself', async () => {
    const before = Number(await data('body', 'updates')), stream = await text('#tiles');
    await until((seen) => Number(document.body.dataset.updates) > seen + 2, before);
    assert.notEqual(await text('#tiles'), stream);
    assert.match(await text('#state'), /training/);
});

test('a command without the token, or with another one, changes nothing and says so', async () => {
    const { generation } = await ask('status');
    await page.locator('[data-command=seal]').click();
    await says('outcome', 'type the token first');
    await page.locator('#token').fill('not the token, but as long');
    await page.locator('[data-command=seal]').click();
    await says('outcome', 'Seal failed: this needs the token');
    assert.equal((await ask('status')).generation, generation);
    faults.length = 0; // the browser notes the refusal
});

test('with the token commands are done, and seen', async () => {
    await page.locator('#token').fill(TOKEN);
    await page.locator('[data-command=seal]').click();
    await says('outcome', 'Generation 0 is sealed');
    assert.equal((await ask('status')).generation, 1);
    await until(() => Number(document.getElementById('loss').dataset.marks) === 1);
    await says('loss-key', 'sealed by command');
    await says('timeline', 'seal');
    await until(() => document.querySelectorAll('#growth tbody tr').length === 2);
    await page.locator('#name').fill('from the page');
    await page.locator('[data-command=snapshot]').click();
    await says('outcome', 'Snapshot failed');
    await page.locator('#name').fill('from-the-page');
    await page.locator('[data-command=snapshot]').click();
    await says('outcome', 'Snapshot from-the-page is of commit');
    assert.equal((await ask('snapshots')).snapshots[0].name, 'from-the-page');
    await page.locator('#side').fill('7');
    await page.locator('[data-command=grow]').click();
    await says('outcome', 'has side 7');
    const stored = await page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie]);
    assert.deepEqual(stored, [0, 0, '']);
    faults.length = 0;
});

test('the heat map shows the matrix of forgetting', async () => {
    const size = async () => { const matrix = await ask('forgetting'); return [matrix, matrix.as_of.length, matrix.columns.length]; };
    await page.reload(); // it asks anew
    await until(() => document.getElementById('forgetting').dataset.complete === 'true');
    await until(() => document.querySelectorAll('#forgetting tbody tr').length === 3); // as of 0, now, forgotten
    // A generation that has learned more since is a column from the page's next look on, which is a minute later.
    const cells = () => page.locator('#forgetting td.cell').count();
    let [matrix, rows, columns] = await size();
    for (const end = Date.now() + 100000; await cells() !== rows * columns && Date.now() < end; [matrix, rows, columns] = await size())
        await new Promise((done) => setTimeout(done, 200));
    assert.deepEqual([rows, matrix.as_of], [2, ['0', 'now']]);
    const shown = await page.$$eval('#forgetting td.cell', (cells) => cells.map((cell) => [cell.textContent, cell.style.background, cell.style.color]));
    assert.equal(shown.length, rows * columns);
    assert.equal(shown[0][0], matrix.values[0][0].toFixed(2)); // as it was sealed: it never changes
    assert.ok(matrix.values[0][0] > 0 && matrix.values[0][0] < 8);
    for (const [value, background, color] of shown.filter((cell) => cell[0] !== '–')) {
        assert.match(value, /^\d+\.\d\d$/);
        assert.match(background, /^rgb/);
        assert.ok(contrast(background, color) >= 4.5, `${background} under ${color}`);
    }
    assert.ok(new Set(shown.map((cell) => cell[1])).size > 1);
});

test('the histogram is that of the generation and layer chosen', async () => {
    await until(() => document.getElementById('usage').dataset.buckets > 0);
    await page.locator('#usage-generation').selectOption('0');
    await says('usage-note', 'of 36 experts');
    await page.locator('#usage-layer').selectOption('1');
    const { layers } = await ask('usage?generation=0');
    await says('usage-note', `unevenness ${layers[1].unevenness.toFixed(3)}`);
    const label = await page.locator('#usage svg').getAttribute('aria-label');
    for (const bucket of layers[1].histogram.filter((one) => one.experts))
        assert.ok(label.includes(`${bucket.experts} experts chosen ${bucket.low} to ${bucket.high} times`));
});

// While nothing is committed there is no other reason to look again.
test('what could not be read is asked for again', async () => {
    await command({ command: 'pause' });
    await page.route('**/v1/usage*', (route) => route.fulfill({ status: 500, json: { error: { message: 'not now' } } }), { times: 1 });
    await page.reload();
    await until(() => document.getElementById('usage').dataset.buckets > 0);
    await command({ command: 'resume' });
    faults.length = 0; // the browser notes the failure
});

// WCAG 2: luminance of two colours as the browser tells them.
function contrast(one, other) {
    const luminance = (color) => color.match(/[\d.]+/g).slice(0, 3).map((part) => {
        const value = part / 255;
        return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    }).reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
    const parse = (color) => ({ '#000': 'rgb(0, 0, 0)', '#fff': 'rgb(255, 255, 255)' })[color] || color;
    const [low, high] = [luminance(parse(one)), luminance(parse(other))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
}

// Every colour of text with what it stands on.
const colours = () => page.evaluate(() => {
    const clear = 'rgba(0, 0, 0, 0)', behind = (node) => {
        while (getComputedStyle(node).backgroundColor === clear) node = node.parentElement;
        return getComputedStyle(node).backgroundColor;
    };
    return [...document.querySelectorAll('p, dd, dt, td:not(.cell), th, label, h2, button, code, mark, summary, strong, section span')]
        .filter((node) => node.offsetParent && node.textContent).map((node) => [behind(node), getComputedStyle(node).color]);
});

async function isReadable() {
    const seen = [];
    for (const colorScheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme });
        const list = await colours();
        seen.push(list[0][0]);
        assert.ok(list.length > 20);
        for (const [back, color] of list) assert.ok(contrast(back, color) >= 4.5, `${color} on ${back}`);
    }
    assert.notEqual(seen[0], seen[1]);
}

test('it is readable in light and in dark', async () => {
    await isReadable();
    assert.ok(await page.locator('#loss canvas').count() > 0);
});

async function fitsPhone() {
    await page.setViewportSize({ width: 360, height: 740 });
    await until(() => document.querySelector('#loss canvas').getBoundingClientRect().right <= 360);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
    const outside = await page.evaluate(() => [...document.querySelectorAll('section *')].filter((node) =>
        !node.closest('.scroll') && node.getBoundingClientRect().right > 360.5).map((node) => node.outerHTML.slice(0, 80)));
    assert.deepEqual(outside, []);
    await page.setViewportSize({ width: 1280, height: 900 });
}

test('it fits a phone', fitsPhone);

async function reachedByTab(presses) {
    const reached = new Set();
    await page.evaluate(() => document.activeElement.blur());
    for (let i = 0; i < presses; i++) {
        await page.keyboard.press('Tab');
        const [id, outline] = await page.evaluate(() => {
            const node = document.activeElement, style = getComputedStyle(node);
            return [node.id || node.dataset.command || node.getAttribute('aria-labelledby') || node.ariaLabel || node.tagName, node === document.body ? 1 : parseFloat(style.outlineWidth) * (style.outlineStyle !== 'none')];
        });
        assert.ok(outline > 0, `${id} has no visible focus`);
        reached.add(id);
    }
    return reached;
}

test('everything that can be used is reached by the keyboard, and seen to be', async () => {
    const reached = await reachedByTab(40);
    for (const id of ['seal', 'grow', 'snapshot', 'token', 'side', 'name', 'usage-generation', 'usage-layer', 'timeline'])
        assert.ok(reached.has(id), `${id} is not reached`);
});

test('a daemon that hangs is seen to', async () => {
    daemon.kill('SIGSTOP');
    await says('alert', 'no update for');
    assert.match(await text('#age'), /last update [1-9]\d* s ago/);
    assert.match(await text('#state'), /no answer/);
    assert.ok(await page.locator('#loss canvas').count() > 0); // what was known stays
    daemon.kill('SIGCONT');
    await until(() => document.getElementById('alert').hidden);
    assert.match(await text('#age'), /last update 0 s ago|last update 1 s ago/);
});

// What a router does that forgets a connection: nothing comes through any more, and neither end hears of it.
test('a connection that is gone without a word is made anew', async () => {
    const [host, port] = address.split(':'), pairs = new Set(), listening = new Set();
    const between = createServer((client) => {
        const pair = [client, connect(port, host)];
        pairs.add(pair);
        client.on('data', (bytes) => bytes.includes('GET /v1/events') && listening.add(pair));
        for (const end of pair) end.on('error', () => {});
        client.pipe(pair[1]).pipe(client);
    });
    await new Promise((resolve) => between.listen(0, '127.0.0.1', resolve));
    const other = await context.newPage();
    await other.goto(`http://127.0.0.1:${between.address().port}/`);
    await other.waitForFunction(() => Number(document.body.dataset.updates) > 1, undefined, WAIT);
    assert.equal(listening.size, 1);
    for (const [client, server] of listening) {
        client.unpipe(server).resume();
        server.unpipe(client).resume();
    }
    await other.waitForFunction(() => document.getElementById('alert').textContent.includes('no update for'), undefined, WAIT);
    const before = await other.locator('body').getAttribute('data-updates');
    await other.waitForFunction((seen) => Number(document.body.dataset.updates) > seen, Number(before), WAIT);
    await other.close();
    for (const pair of pairs) for (const end of pair) end.destroy();
    between.close();
});

test('after a restart it goes on, with the history that the pool holds', async () => {
    const port = address, points = Number(await data('#loss', 'points')), { pid } = await ask('status');
    daemon.kill('SIGTERM');
    assert.equal(await ended(), 0);
    await says('alert', 'no update for');
    await start(port);
    await until((before) => !document.getElementById('footer').textContent.includes(`process ${before},`), pid);
    await page.reload();
    await until((before) => Number(document.getElementById('loss').dataset.points) >= Math.min(before, 200), points);
    await until(() => Number(document.getElementById('loss').dataset.marks) >= 1); // asked for on its own
    assert.equal(await page.locator('#token').inputValue(), '');
});

test('after a restore in place the loss has no marks of what was discarded', async () => {
    const port = address, marks = () => page.evaluate(() => document.getElementById('loss-key').innerText);
    await command({ command: 'seal' });
    await says('loss-key', 'sealed by command or mark (2)');
    assert.match(await marks(), /grown, .* \(1\)/);
    daemon.kill('SIGTERM');
    assert.equal(await ended(), 0);
    execFileSync(REEF, ['snapshot', 'restore', pool, 'from-the-page', '--in-place', '--yes']);
    await start(port);
    await page.reload();
    await until(() => document.querySelectorAll('#growth tbody tr').length === 2);
    await says('timeline', 'restore');
    await until(() => document.getElementById('loss').dataset.marks);
    assert.match(await marks(), /sealed by command or mark \(1\)/); // before the snapshot
    assert.match(await marks(), /grown, .* \(1\)/); // the restore itself
    assert.equal(await data('#loss', 'marks'), '2');
});

test('kinds are shown where they learned, and are named from the page', async () => {
    const kinds = join(directory, 'kinds.pool'), source = join(directory, 'kinds.txt');
    // Two kinds in turns: words of other letters.
    const turn = join(directory, 'turn'), letters = [];
    writeText(turn, 20000);
    const first = readFileSync(turn), second = Buffer.from(first.map((byte) => (byte === 32 ? 32 : byte - 40)));
    for (let i = 0; i < 4; i++) letters.push(i % 2 ? second : first);
    writeFileSync(source, Buffer.concat(letters));
    execFileSync(REEF, ['init', kinds, '--boundaries', 'contexts', '--net-share', '0', '--memory', '4M']);
    const port = address;
    daemon.kill('SIGTERM');
    assert.equal(await ended(), 0);
    await start(port, kinds, source);
    await page.reload();
    await until(() => document.querySelectorAll('#kinds-table tbody tr').length === 2 && document.querySelectorAll('#kinds-table .strip rect').length === 4);
    const known = await ask('kinds?visits=10');
    assert.equal(known.kinds.length, 2);
    assert.deepEqual(known.visits.map((visit) => visit.kind), [0, 1, 0, 1]);
    assert.match(await text('#kinds-note'), /2 kinds; 2 came back\. Kind 1 is being learned/);
    assert.match(await text('#tiles'), /kinds\s+2/);
    await page.locator('#token').fill(TOKEN);
    await page.locator('#kind').fill('1');
    await page.locator('#kind-name').fill('capitals');
    await page.locator('[data-command="kind_name"]').click();
    await says('outcome', 'Kind 1 is called capitals');
    await until(() => document.querySelector('#kinds-table tbody tr:nth-child(2)').textContent.includes('capitals'));
    assert.equal((await ask('kinds')).kinds[1].name, 'capitals');
    assert.deepEqual((await ask('kinds')).visits, []);
});

const decided = async (number) => (await ask('incidents')).incidents.find((one) => one.incident === number).decision;
const incident = (number) => `#incidents [data-incident="${number}"]`;
const incidentSays = (number, part) => until(([where, what]) => document.querySelector(where)?.textContent.includes(what), [incident(number), part]);

test('incidents of a pool that watches lines are shown: what is open first, lines as text, what is new in them marked', async () => {
    const logs = join(directory, 'logs.pool'), source = join(directory, 'app.log'), lines = writeLog(source);
    execFileSync(REEF, ['init', logs, '--net-share', '0', '--memory', '4M', '--watch', 'true']);
    const port = address;
    daemon.kill('SIGTERM');
    assert.equal(await ended(), 0);
    await start(port, logs, `follow:${source}`);
    await page.reload();
    await until(() => document.querySelectorAll('#incidents-list > li').length === 3);
    await until((number) => document.getElementById('incidents-note').textContent.startsWith(`${number.toLocaleString('en')} lines read = `), lines);
    const { watch } = await ask('status'), [first, second, last] = (await ask('incidents')).incidents;
    assert.deepEqual([first.state, second.state, last.state], ['ended', 'ended', 'open']);
    const figures = [watch.lines, watch.usual, watch.in_events, watch.suppressed].map((value) => value.toLocaleString('en'));
    assert.ok((await text('#incidents-note')).startsWith(`${figures[0]} lines read = ${figures[1]} usual + ${figures[2]} in events + ${figures[3]} suppressed. 3 incidents rang, 1 open.`));
    assert.deepEqual(await page.$$eval('#incidents-list > li', (items) => items.map((item) => Number(item.dataset.incident))),
        [last.incident, second.incident, first.incident]);
    assert.match(await text(incident(last.incident)), /open\s+.*severity critical\s+2026-11-01 05:00:00/);
    assert.match(await text(incident(second.incident)), /ended\s+severity none\s+2026-11-01 04:10:01/);
    assert.match(await text(`${incident(second.incident)} > .facts`), new RegExp(`^new word · 1 line · ${source}$`));
    assert.equal(await text(`${incident(second.incident)} > code mark`), 'doubt');
    // What would do harm is there to be read, and does none.
    assert.ok((await text(`${incident(first.incident)} > code`)).endsWith(HARMFUL.replaceAll('\x1b', '\\x1b').replaceAll('\u202e', '\\u202e')));
    assert.equal(await page.locator('#incidents script, #incidents img, #timeline script, #timeline img').count(), 0);
    assert.match(await page.title(), /^Reef/);
    await says('timeline', `incident ${last.incident} rings: 2026-11-01T05:00:00`);
    assert.doesNotMatch(await text('#timeline'), /\[object|[\x1b\u202e]/);
    // All that is kept of it.
    assert.equal(await page.locator(`${incident(first.incident)} details li`).first().isVisible(), false);
    await page.locator(`${incident(first.incident)} summary`).click();
    assert.equal(await page.locator(`${incident(first.incident)} details li`).count(), first.events.length);
    const event = first.events[0];
    await incidentSays(first.incident, `severity critical · ${event.bits.toFixed(1)} bits · at byte ${event.offset.toLocaleString('en')} of ${event.file}`);
    assert.equal(event.file, source);
    assert.equal(await page.locator(`${incident(first.incident)} details li`).first().isVisible(), true);
});

test('a decision of an incident needs the token, is made by a button, and is seen', async () => {
    const first = (await ask('incidents')).incidents[0].incident, button = (decision) => page.locator(`${incident(first)} [data-decision=${decision}]`);
    await button('normal').click();
    await incidentSays(first, 'Nothing was done: type the token');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'token');
    await page.locator('#token').fill('not the token, but as long');
    await button('fault').click();
    await incidentSays(first, 'Fault failed: this needs the token');
    assert.equal(await decided(first), undefined);
    faults.length = 0; // the browser notes the refusal
    await page.locator('#token').fill(TOKEN);
    for (const [decision, reply, list] of [['mute', 'is muted for 7 days. That holds for 1 type of lines', 'said: muted'],
        ['fault', 'is a fault', 'said: a fault'], ['normal', 'is normal', 'said: normal']]) {
        await button(decision).focus();
        await page.keyboard.press('Enter');
        await incidentSays(first, reply);
        assert.equal(await decided(first), decision);
        await incidentSays(first, list);
        // The list was drawn anew: what was open in it is so still, and the focus has not moved.
        assert.equal(await page.locator(`${incident(first)} details`).evaluate((node) => node.open), true);
        assert.equal(await page.evaluate(() => document.activeElement.dataset.decision), decision);
    }
    const told = (await ask('timeline')).events.filter((event) => event.event === 'incident_decided');
    assert.deepEqual(told.map((event) => [event.decision, event.for_s]), [['mute', 7 * 86400], ['fault', 0], ['normal', 0]]);
    // One that is known no more is refused by the daemon, and the page says what that said.
    await page.evaluate((number) => document.querySelector(`#incidents [data-incident="${number}"] [data-decision=mute]`).dataset.decision = 'gone', first);
    await page.locator(`${incident(first)} [data-decision=gone]`).click();
    await incidentSays(first, "Mute 7 days failed: decision 'gone' is none: they are normal, mute and fault");
    faults.length = 0;
});

test('incidents are readable, fit a phone, and are reached by the keyboard', async () => {
    await page.reload();
    await until(() => document.querySelectorAll('#incidents-list > li').length === 3);
    await page.evaluate(() => document.querySelectorAll('#incidents details').forEach((node) => { node.open = true; }));
    await isReadable();
    await fitsPhone();
    const reached = await reachedByTab(20), { incidents } = await ask('incidents');
    for (const { incident: number } of incidents)
        for (const name of ['Normal', 'Mute 7 days', 'Fault']) assert.ok(reached.has(`${name}: incident ${number}`), `${name} of ${number} is not reached`);
    assert.ok(reached.has('SUMMARY'));
});

test('what rings, and what ends, is seen without a reload; beyond the first six they are folded', async () => {
    await page.reload(); // everything is closed again
    await until(() => document.querySelectorAll('#incidents-list > li').length === 3);
    const last = (await ask('incidents')).incidents[2].incident, source = join(directory, 'app.log');
    // Each 50 minutes after the one before: a time that is much later would not be believed.
    for (const line of ['05:50:00 web app[100]: error: backend late while shards of poola were lost', '06:40:00 web app[101]: error: router locked, no lease for poolb',
        '07:30:00 web app[102]: error: stale index below poolc', '08:20:00 web app[103]: error: cannot fork for poold', '08:20:30 web app[104]: request 7 of user2 took 3 ms'])
        appendFileSync(source, `2026-11-01T${line}\n`);
    await until(() => document.querySelectorAll('#incidents-list > li').length === 6 && document.querySelectorAll('#incidents-more li[data-incident]').length === 1);
    await incidentSays(last, 'ended');
    assert.equal(await text('#incidents-more > summary'), '1 more');
    const known = (await ask('incidents')).incidents.reverse(), isOpen = (one) => one.state === 'open';
    assert.ok(known.some(isOpen));
    assert.deepEqual(await page.$$eval('#incidents-list > li, #incidents-more > ol > li', (items) => items.map((item) => Number(item.dataset.incident))),
        [...known.filter(isOpen), ...known.filter((one) => !isOpen(one))].map((one) => one.incident));
    assert.equal(await page.locator(incident(known[6].incident)).isVisible(), false);
    await page.locator('#incidents-more > summary').click();
    assert.equal(await page.locator(incident(known[6].incident)).isVisible(), true);
});

test('a rank that learns apart shows its joins', { skip: MPIRUN ? false : 'there is no mpirun (Debian: openmpi-bin)' }, async () => {
    const base = join(directory, 'base.pool'), ranks = join(directory, 'ranks'), sources = ['a', 'b'].map((name) => join(directory, name));
    writeText(sources[0], 100000);
    writeFileSync(sources[1], readFileSync(sources[0]).map((byte) => (byte === 32 ? 32 : byte - 40)));
    execFileSync(REEF, ['init', base, '--net-share', '0', '--memory', '4M']);
    execFileSync(REEF, ['train', base, sources[0]], { stdio: 'ignore' });
    execFileSync(REEF, ['seal', base]);
    mkdirSync(ranks);
    for (const rank of [0, 1]) cpSync(base, join(ranks, `rank-${rank}`), { recursive: true });
    assert.equal(await page.locator('#joins').isHidden(), true);
    const http = address, each = (rank) => [REEFD, '--pool', ranks, '--source', sources[rank], '--join-every', '64K', '--stay', '--quiet'];
    daemon.kill('SIGTERM');
    assert.equal(await ended(), 0);
    daemon = spawn(MPIRUN, ['--oversubscribe', '--allow-run-as-root', '--bind-to', 'none', '-n', '1', ...each(0), '--http', http,
        ':', '-n', '1', ...each(1)], { stdio: ['ignore', 'inherit', 'inherit'] });
    await answers(join(ranks, 'rank-0'));
    await page.reload();
    await until(() => Number(document.querySelector('#joins-table tbody td')?.textContent) >= 1);
    const { joins } = await ask('status');
    assert.match(await text('#joins-note'), /Rank 0 of 2 learns apart: .* to the next join\. \d+ kinds? came from other ranks/);
    assert.ok(joins.sent_bytes > 0 && joins.received_bytes > 0);
    execFileSync(REEF, ['stop', join(ranks, 'rank-0')]);
    assert.equal(await ended(), 0);
});

test('nothing was asked of anybody else, and nothing went wrong', () => {
    assert.deepEqual(asked.filter((url) => !url.startsWith(`http://${address}/`) && !url.startsWith('data:')), []);
    assert.deepEqual(faults.filter((fault) => !/ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|network error|Failed to fetch/i.test(fault)), []);
});
