// What is drawn: charts over time (uPlot), the heat map, the histogram. Nothing here asks the daemon.
'use strict';

const charts = (() => {
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

    function make(tag, attributes, ...children) {
        const svg = ['svg', 'rect', 'line', 'text', 'path', 'circle', 'title'].includes(tag);
        const node = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
        for (const [name, value] of Object.entries(attributes || {}))
            if (value !== undefined) node.setAttribute(name, value);
        node.append(...children);
        return node;
    }

    // ---- numbers ---------------------------------------------------------------------------------

    function bytes(value) {
        if (value === null || value === undefined || !isFinite(value)) return '–';
        const units = ['B', 'kB', 'MB', 'GB', 'TB'];
        let unit = 0;
        while (Math.abs(value) >= 999.5 && unit < 4) { value /= 1000; unit++; }
        return `${unit && Math.abs(value) < 99.5 ? value.toFixed(1) : value.toFixed(0)} ${units[unit]}`;
    }

    // For the ticks of an axis: 1.25 MB is not 1.3 MB.
    function tick(value) {
        const unit = value >= 1e9 ? 9 : value >= 1e6 ? 6 : value >= 1e3 ? 3 : 0;
        return `${Number((value / 10 ** unit).toPrecision(4))} ${{ 0: 'B', 3: 'kB', 6: 'MB', 9: 'GB' }[unit]}`;
    }

    const count = (value) => (value === null || value === undefined ? '–' : Math.round(value).toLocaleString('en'));
    const fixed = (value, digits) => (value === null || value === undefined ? '–' : value.toFixed(digits));
    const percent = (value, digits) => (value === null || value === undefined ? '–' : `${(100 * value).toFixed(digits)} %`);

    function span(seconds) {
        if (seconds === null || seconds === undefined) return '–';
        if (seconds < 60) return `${Math.floor(seconds)} s`;
        if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
        if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
        return `${Math.floor(seconds / 86400)} d`;
    }

    // ---- charts over time ------------------------------------------------------------------------

    const plots = new Map(); // element -> {plot, build}

    function axis(extra) {
        return { stroke: css('--soft'), grid: { stroke: css('--line'), width: 1 }, ticks: { stroke: css('--line'), width: 1 },
                 font: '12px system-ui, sans-serif', ...extra };
    }

    function draw(element, data, build) {
        let known = plots.get(element);
        const size = { width: element.clientWidth, height: element.clientHeight };
        if (!known) {
            known = { plot: new uPlot({ ...build(), ...size }, data, element), build };
            plots.set(element, known);
        } else {
            known.plot.setData(data);
        }
        element.dataset.points = data[0].length;
    }

    function resize() {
        for (const [element, known] of plots)
            if (element.clientWidth) known.plot.setSize({ width: element.clientWidth, height: element.clientHeight });
    }

    // Colours are those of the page: they are read again when it turns dark or light.
    function repaint() {
        for (const [element, known] of plots) {
            const data = known.plot.data;
            known.plot.destroy();
            known.plot = new uPlot({ ...known.build(), width: element.clientWidth, height: element.clientHeight }, data, element);
        }
    }

    new ResizeObserver(resize).observe(document.documentElement);
    dark.addEventListener('change', repaint);

    // Marks differ in shape and in the dashes of their line, not in colour alone.
    const MARKS = {
        found: { text: 'sealed as the text changed or came back', color: '--second', dash: [], shape: 'diamond' },
        seal: { text: 'sealed by command or mark', color: '--main', dash: [6, 4], shape: 'triangle' },
        other: { text: 'grown, joined or restored', color: '--soft', dash: [2, 3], shape: 'square' },
    };
    const PATHS = { diamond: 'M6 0 L12 6 L6 12 L0 6 Z', triangle: 'M0 1 L12 1 L6 12 Z', square: 'M1 1 H11 V11 H1 Z' };

    function markOf(event) {
        if (event.event === 'seal') return ['contexts', 'return'].includes(event.reason) ? 'found' : 'seal';
        return ['grow', 'import', 'restore'].includes(event.event) ? 'other' : null;
    }

    function drawMarks(plot, marks) {
        const context = plot.ctx, ratio = devicePixelRatio, box = plot.bbox;
        context.save();
        let last = -Infinity;
        for (const mark of marks) {
            if (mark.at < plot.scales.x.min || mark.at > plot.scales.x.max) continue;
            const x = Math.round(plot.valToPos(mark.at, 'x', true)), kind = MARKS[mark.kind];
            context.strokeStyle = context.fillStyle = css(kind.color);
            context.lineWidth = ratio;
            context.setLineDash(kind.dash.map((part) => part * ratio));
            context.beginPath();
            context.moveTo(x, box.top);
            context.lineTo(x, box.top + box.height);
            context.stroke();
            context.setLineDash([]);
            if (x - last < 13 * ratio) continue; // no room for another shape
            last = x;
            context.save();
            context.translate(x - 6 * ratio, box.top - 14 * ratio);
            context.scale(ratio, ratio);
            context.fill(new Path2D(PATHS[kind.shape]));
            context.restore();
        }
        context.restore();
    }

    // The first batches of a new domain would press everything else down to the axis: peaks may leave the chart.
    function top(losses) {
        const sorted = losses.filter((value) => value !== null).sort((a, b) => a - b);
        if (!sorted.length) return 1;
        return Math.max(0.01, 1.08 * Math.min(sorted[sorted.length - 1], 2 * sorted[Math.floor(0.95 * (sorted.length - 1))]));
    }

    let marks = [];

    function lossOptions() {
        return {
            padding: [18, 10, 0, 0],
            legend: { show: false },
            cursor: { y: false },
            scales: {
                x: { time: false },
                y: { range: (plot) => [0, top(plot.data[1])] },
            },
            axes: [
                axis({ values: (plot, ticks) => ticks.map(tick), space: 70, size: 32 }),
                axis({ values: (plot, ticks) => ticks.map((value) => String(Number(value.toPrecision(3)))), size: 46 }),
            ],
            series: [
                {},
                { stroke: css('--main'), width: 2, points: { show: false } },
                { stroke: 'transparent', points: { show: false } },
                { stroke: 'transparent', points: { show: false } },
            ],
            bands: [{ series: [3, 2], fill: css('--fill') }],
            hooks: { draw: [(plot) => drawMarks(plot, marks)] },
        };
    }

    // A restore leaves the events of what it undid, where the curve now goes another way.
    function marksOf(events) {
        const list = [];
        for (const event of events) {
            const kind = event.undone ? null : markOf(event);
            if (kind) list.push({ at: event.stream_bytes, kind });
        }
        return list;
    }

    function loss(element, points, events) {
        marks = marksOf(events);
        element.dataset.marks = marks.length;
        draw(element, [points.map((point) => point.stream_bytes), points.map((point) => point.loss),
                       points.map((point) => point.low), points.map((point) => point.high)], lossOptions);
    }

    function key(list) {
        list.replaceChildren();
        for (const [name, kind] of Object.entries(MARKS)) {
            const many = marks.filter((mark) => mark.kind === name).length;
            if (!many) continue;
            const shape = make('svg', { width: 12, height: 12, 'aria-hidden': 'true' }, make('path', { d: PATHS[kind.shape] }));
            shape.style.fill = `var(${kind.color})`;
            list.append(make('li', {}, shape, `${kind.text} (${many})`));
        }
    }

    const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString('en-GB');

    function rate(element, history) {
        draw(element, [history.map((one) => one.at), history.map((one) => one.rate)], () => ({
            padding: [8, 10, 0, 0],
            legend: { show: false },
            cursor: { y: false },
            scales: { y: { range: (plot, low, high) => [0, 1.1 * Math.max(high || 0, 1000)] } },
            axes: [axis({ space: 80, size: 32, values: (plot, ticks) => ticks.map(clock) }),
                   axis({ values: (plot, ticks) => ticks.map((value) => `${tick(value)}/s`), size: 74 })],
            series: [{}, { stroke: css('--main'), width: 2, fill: css('--fill'), points: { show: false } }],
        }));
    }

    // ---- heat map --------------------------------------------------------------------------------

    // Viridis in five stops: even in lightness, so that it reads without colour vision and in print.
    const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

    function colour(share) {
        const at = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1), low = Math.min(Math.floor(at), STOPS.length - 2);
        return STOPS[low].map((value, i) => Math.round(value + (at - low) * (STOPS[low + 1][i] - value)));
    }

    const ink = ([r, g, b]) => (0.2126 * r + 0.7152 * g + 0.0722 * b > 120 ? '#000' : '#fff');

    // Losses span decades between a text that a state has never met and one that it knows.
    function scaleOf(matrix) {
        const known = matrix.values.flat().filter((value) => value !== null);
        const low = Math.min(...known), high = Math.max(...known);
        const share = (value) => (high > low && low > 0 ? Math.log(value / low) / Math.log(high / low) : 0);
        return { low, high, share, any: known.length > 0 };
    }

    function heatMap(table, scaleElement, matrix) {
        const scale = scaleOf(matrix), text = (value) => fixed(value, 2);
        const columnName = (column) => `gen. ${column.generation}`;
        const learnedRow = (column) => matrix.as_of.indexOf(String(column.generation));
        const head = make('tr', {}, make('th', { scope: 'col' }, 'state'));
        for (const column of matrix.columns) head.append(make('th', { scope: 'col' }, columnName(column)));
        const body = make('tbody');
        matrix.as_of.forEach((state, r) => {
            const row = make('tr', {}, make('th', { scope: 'row' }, state === 'now' ? 'now' : `as of ${state}`));
            matrix.columns.forEach((column, c) => {
                const value = matrix.values[r][c], learned = learnedRow(column) === r;
                const cell = make('td', { class: `cell${learned ? ' learned' : ''}` }, text(value));
                if (value !== null) {
                    const rgb = colour(scale.share(value));
                    cell.style.background = `rgb(${rgb.join(',')})`;
                    cell.style.color = ink(rgb);
                }
                row.append(cell);
            });
            body.append(row);
        });
        body.append(changeRow(matrix, learnedRow));
        table.replaceChildren(make('thead', {}, head), body);
        table.dataset.cells = matrix.values.flat().filter((value) => value !== null).length;
        table.dataset.complete = matrix.complete;
        showScale(scaleElement, scale, text);
    }

    function changeRow(matrix, learnedRow) {
        const row = make('tr', {}, make('th', { scope: 'row' }, 'forgotten')), now = matrix.values[matrix.as_of.length - 1];
        matrix.columns.forEach((column, c) => {
            const at = learnedRow(column), before = at < 0 ? null : matrix.values[at][c];
            const change = before === null || now[c] === null ? null : now[c] - before;
            const small = change !== null && Math.abs(change) < 0.005;
            row.append(make('td', {}, change === null ? '–' : small ? '= 0.00' : `${change > 0 ? '▲' : '▼'} ${Math.abs(change).toFixed(2)}`));
        });
        return row;
    }

    function showScale(element, scale, text) {
        element.replaceChildren();
        if (!scale.any) return;
        const canvas = make('canvas', { width: 320, height: 1, 'aria-hidden': 'true' }), context = canvas.getContext('2d');
        for (let x = 0; x < 320; x++) {
            context.fillStyle = `rgb(${colour(x / 319).join(',')})`;
            context.fillRect(x, 0, 1, 1);
        }
        element.append(canvas, `${text(scale.low)} (dark, best) to ${text(scale.high)} (light, worst); framed: as it was learned`);
    }

    // ---- histogram -------------------------------------------------------------------------------

    const short = (value) => (value < 1e3 ? String(value) : value < 1e6 ? `${Math.round(value / 1e3)}k` : value < 1e9 ? `${Math.round(value / 1e6)}M` : `${Math.round(value / 1e9)}G`);

    function histogram(element, layer) {
        const buckets = layer.histogram.filter((bucket, i, all) => i === 0 || all.slice(0, i + 1).some((one, k) => k > 0 && one.experts));
        const most = Math.max(1, ...buckets.map((bucket) => bucket.experts));
        const wide = Math.max(200, element.clientWidth), high = 170, step = wide / Math.max(buckets.length, 1), base = high - 18;
        const svg = make('svg', { viewBox: `0 0 ${wide} ${high}`, role: 'img',
            'aria-label': buckets.map((bucket) => `${bucket.experts} experts chosen ${bucket.low} to ${bucket.high} times`).join(', ') });
        buckets.forEach((bucket, i) => {
            const height = (base - 16) * bucket.experts / most;
            svg.append(make('rect', { x: i * step + 1, y: base - height, width: Math.max(step - 2, 1), height, class: bucket.low ? '' : 'dead' }));
            if (bucket.experts) svg.append(make('text', { x: (i + 0.5) * step, y: base - height - 4, 'text-anchor': 'middle' }, short(bucket.experts)));
            if (step > 30 || i % 2 === 0)
                svg.append(make('text', { x: (i + 0.5) * step, y: high - 4, 'text-anchor': 'middle' }, bucket.low ? short(bucket.low) : 'never'));
        });
        svg.append(make('line', { x1: 0, x2: wide, y1: base, y2: base }));
        element.replaceChildren(svg);
        element.dataset.buckets = buckets.length;
    }

    // ---- kinds -----------------------------------------------------------------------------------

    // Where in the stream one kind learned: a strip as long as the stream.
    function strip(visits, end) {
        const wide = 600, high = 14;
        const svg = make('svg', { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: 'none', class: 'strip', role: 'img',
            'aria-label': visits.map((visit) => `${bytes(visit.from)} to ${bytes(visit.to)}`).join(', ') || 'not known' });
        svg.append(make('line', { x1: 0, x2: wide, y1: high - 0.5, y2: high - 0.5 }));
        for (const visit of visits)
            svg.append(make('rect', { x: wide * visit.from / end, y: 1, height: high - 2, width: Math.max(1, wide * (visit.to - visit.from) / end) },
                make('title', {}, `${bytes(visit.from)} to ${bytes(visit.to)}: ${fixed(visit.bits_per_byte, 3)} bits per byte`)));
        return svg;
    }

    return { make, strip, bytes, count, fixed, percent, span, loss, key, rate, heatMap, histogram };
})();
