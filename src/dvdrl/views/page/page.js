// Draws the report from the JSON in the page. Text enters the document as text only, never as markup.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const watched = location.protocol !== "file:" && document.documentElement.dataset.watch === "true";
  let data = JSON.parse(document.getElementById("data").textContent);
  const videos = new Map(data.runs.map((run) => [run.name, run.videos]));
  const hidden = new Map(); // names of hidden series, by figure
  const state = { run: 0, frame: null, measure: "best_return", axes: null, timer: null };
  let redraws = []; // functions that draw again when the width changes
  let settle; // sets slider, heat map, map and cards to an iteration, once they are in the document

  // ---- elements

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(2).filter((child) => child !== null));
    return node;
  }
  const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  const colour = (index) => `c${index % data.colours}`;

  function shown(value) {
    if (value === null || value === undefined) return "–";
    if (Number.isInteger(value)) return value.toLocaleString("en");
    return String(Number(value.toPrecision(6))).replace("-", "−");
  }

  // ---- line charts

  function ticks(low, high, count) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
    return found;
  }

  function extent(arrays) {
    let low = Infinity, high = -Infinity;
    for (const array of arrays) {
      for (const value of array) {
        if (value === null) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    return low > high ? [0, 1] : [low, high];
  }

  function compact(value) {
    const size = Math.abs(value);
    for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
      if (size >= unit) return `${Number((value / (name === "k" ? 1e3 : unit)).toPrecision(4))}${name}`.replace("-", "−");
    }
    return String(Number(value.toPrecision(4))).replace("-", "−");
  }

  // What surrounds a picture: its places in pixels, and its axes. With `rows`, the y-axis has their names at 0, 1, ...
  function plot(width, height, [x0, x1], [y0, y1], xName, rows = null) {
    const left = 52, right = 10, top = 8, bottom = 34;
    const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
    const py = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
    const drawn = [];
    for (const y of rows ? rows.keys() : ticks(y0, y1, 5)) {
      drawn.push(svg("line", { class: "axis", x1: left, x2: width - right, y1: py(y), y2: py(y) }),
        svg("text", { x: left - 6, y: py(y) + 4, "text-anchor": "end" }, rows ? rows[y] : compact(y)));
    }
    for (const x of ticks(x0, x1, Math.max(2, Math.floor(width / 110)))) {
      drawn.push(svg("text", { x: px(x), y: height - bottom + 15, "text-anchor": "middle" }, compact(x)));
    }
    drawn.push(svg("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, xName));
    return { left, right, top, bottom, px, py, drawn };
  }

  function widened([low, high]) {
    const margin = (high - low) * 0.05 || Math.abs(low) * 0.1 || 1;
    return [low - margin, high + margin];
  }

  // Shows lines beside a place of a figure's picture, `at` of its width from the left.
  function tell(figure, tip, at, lines) {
    tip.hidden = false;
    tip.replaceChildren(...lines.map((line) => html("div", {}, line)));
    const room = figure.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(room, at * figure.clientWidth + 12))}px`;
  }

  // series: {name, kind, x, y, low, high, steps, say}. `kind` is the class of the line, `low` and `high` bound a band.
  // With `steps`, a value holds until the next one. `say(x)` is what is read at x, instead of the value.
  function chart(id, caption, xName, series, now = null, rows = null) {
    const off = hidden.get(id) ?? hidden.set(id, new Set()).get(id);
    const figure = html("figure", { id });
    const holder = html("div");
    const tip = html("div", { class: "tip", hidden: true, "aria-live": "polite" });
    const legend = html("div", { class: "legend" });
    figure.append(html("figcaption", {}, caption), holder, tip, legend);
    let at = null; // the x of the crosshair

    if (series.length > 1) {
      for (const each of series) {
        const button = html("button", { type: "button", "aria-pressed": String(!off.has(each.name)) },
          html("span", { class: `swatch ${each.kind}` }), each.name);
        button.addEventListener("click", () => {
          if (!off.delete(each.name)) off.add(each.name);
          button.setAttribute("aria-pressed", String(!off.has(each.name)));
          draw();
        });
        legend.append(button);
      }
    }

    function draw() {
      const width = Math.max(200, holder.clientWidth || 600), height = rows ? 60 + 22 * rows.length : 230;
      const visible = series.filter((each) => !off.has(each.name));
      let [x0, x1] = extent(series.map((each) => each.x));
      if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
      const ys = rows ? [rows.length - 0.5, -0.5]
        : widened(extent(visible.flatMap((each) => [each.y, each.low ?? [], each.high ?? []])));
      const { left, right, top, bottom, px, py, drawn } = plot(width, height, [x0, x1], ys, xName, rows);

      for (const each of visible) {
        if (each.low) {
          for (const [from, to] of stretches(each.low)) {
            const there = [], back = [];
            for (let i = from; i < to; i++) {
              there.push(`${px(each.x[i]).toFixed(1)},${py(each.low[i]).toFixed(1)}`);
              back.push(`${px(each.x[i]).toFixed(1)},${py(each.high[i]).toFixed(1)}`);
            }
            drawn.push(svg("path", { class: `band ${each.kind}`, d: `M${there.join("L")}L${back.reverse().join("L")}Z` }));
          }
        }
        const strokes = [];
        for (const [from, to] of stretches(each.y)) {
          if (to - from === 1) {
            drawn.push(svg("circle", { class: `dot ${each.kind}`, cx: px(each.x[from]), cy: py(each.y[from]), r: 3 }));
            continue;
          }
          const points = [];
          for (let i = from; i < to; i++) {
            if (each.steps && i > from) points.push(`${px(each.x[i]).toFixed(1)},${py(each.y[i - 1]).toFixed(1)}`);
            points.push(`${px(each.x[i]).toFixed(1)},${py(each.y[i]).toFixed(1)}`);
          }
          strokes.push(`M${points.join("L")}`);
        }
        if (strokes.length) drawn.push(svg("path", { class: `line ${each.kind}`, d: strokes.join("") }));
      }
      const marker = svg("line", { class: "now", y1: top, y2: height - bottom, visibility: "hidden" });
      const cross = svg("line", { class: "cross", y1: top, y2: height - bottom, visibility: "hidden" });
      const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0,
        "aria-label": `${caption}. Use the arrow keys to read values.` }, drawn, marker, cross);
      holder.replaceChildren(picture);
      figure.mark = (x) => place(marker, x);
      if (now !== null) figure.mark(now());

      function place(line, x) {
        line.setAttribute("visibility", x === null || x < x0 || x > x1 ? "hidden" : "visible");
        if (x === null) return;
        line.setAttribute("x1", px(x));
        line.setAttribute("x2", px(x));
      }

      function read(x) {
        at = x;
        place(cross, x);
        tip.hidden = x === null || !visible.length;
        if (tip.hidden) return;
        tell(figure, tip, px(x) / width, [[`${xName} ${shown(x)}`], ...visible.map((each) => {
          const i = nearest(each.x, x);
          const range = each.low && i !== null ? ` [${shown(each.low[i])}, ${shown(each.high[i])}]` : "";
          const value = each.say ? each.say(x) : `${i === null ? "–" : shown(each.y[i])}${range}`;
          return [html("span", { class: `swatch ${each.kind}` }), `${each.name}: ${value}`];
        })]);
      }

      const known = rows ? series[0].x : visible.reduce((most, each) => (each.x.length > most.length ? each.x : most), []);
      picture.addEventListener("pointermove", (event) => {
        const box = picture.getBoundingClientRect();
        const x = x0 + (((event.clientX - box.left) / box.width) * width - left) / (width - left - right) * (x1 - x0);
        const i = nearest(known, x);
        read(i === null ? null : known[i]);
      });
      picture.addEventListener("pointerleave", () => read(null));
      picture.addEventListener("blur", () => read(null));
      picture.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const points = known.filter((x) => x !== null);
        const i = at === null ? (step > 0 ? -1 : points.length) : points.indexOf(at);
        const next = points[Math.max(0, Math.min(points.length - 1, i + step))];
        if (next !== undefined) read(next);
      });
    }
    redraws.push(draw);
    return figure;
  }

  // The stretches without a gap, as [from, to).
  function stretches(values) {
    const found = [];
    let from = 0;
    for (let i = 0; i <= values.length; i++) {
      if (i < values.length && values[i] !== null) continue;
      if (i > from) found.push([from, i]);
      from = i + 1;
    }
    return found;
  }

  function nearest(values, wanted) {
    let best = null;
    for (let i = 0; i < values.length; i++) {
      if (values[i] !== null && (best === null || Math.abs(values[i] - wanted) < Math.abs(values[best] - wanted))) best = i;
    }
    return best;
  }

  // ---- sections

  const section = (id, title, ...children) => html("section", { id, "aria-label": title }, html("h2", {}, title), children);

  function comparison() {
    const { groups, names } = data.comparison;
    const host = html("div");
    const choose = html("select", { id: "measure", "aria-label": "What to compare" },
      Object.entries(names).map(([key, name]) => html("option", { value: key }, name)));
    choose.value = state.measure;
    const figures = () => {
      const series = groups.map((group, i) => {
        const { x, y, low, high } = group.measures[state.measure];
        return { name: `${group.label} (${group.runs})`, kind: colour(i), x, y, ...(group.runs > 1 ? { low, high } : {}) };
      });
      return chart("comparison-chart", names[state.measure], "environment steps", series);
    };
    choose.addEventListener("change", () => {
      state.measure = choose.value;
      host.replaceChildren(figures());
      redraws.at(-1)();
    });
    host.append(figures());
    const rows = groups.map((group, i) => html("tr", {},
      html("th", { scope: "row" }, html("span", { class: `swatch ${colour(i)}` }), `${group.label} (${group.runs})`),
      Object.keys(names).map((key) => {
        const { y, low, high } = group.measures[key];
        const range = group.runs > 1 && y.length ? ` [${shown(low.at(-1))}, ${shown(high.at(-1))}]` : "";
        return html("td", {}, y.length ? shown(y.at(-1)) + range : "–");
      })));
    return section("comparison", "Comparison", html("p", { class: "note" },
      "Each group is the mean over runs that differ only in their seed; the number of runs is in parentheses. Bands and brackets are 95 % t-intervals. The table shows the last step that all runs of a group have reached."),
    html("div", { class: "controls" }, choose), host,
    html("div", { class: "scroll" }, html("table", { class: "facts numbers" },
      html("tr", {}, html("th", {}), Object.values(names).map((name) => html("th", { scope: "col" }, name))), rows)));
  }

  function overview(run) {
    const names = { iteration: "iteration", env_steps: "environment steps", best_return: "best return", mean_return: "mean return",
      lambda: "lambda", log_det_per_member: "log det / M", vendi_1: "Vendi score", min_distance: "smallest distance" };
    return section("overview", "Latest", html("dl", { class: "tiles" }, Object.entries(names).map(([key, name]) =>
      html("div", {}, html("dt", {}, name), html("dd", { "data-value": key }, shown(run.last[key]))))));
  }

  function curves(run) {
    const now = () => run.frames[state.frame]?.iteration ?? null;
    const one = (id, name, key, kind = "c0") => chart(id, name, "iteration", [{ name, kind, steps: key === "lambda", ...run.curves[key] }], now);
    const members = run.members.map((curve, i) => ({ name: `member ${i}`, kind: colour(i), ...curve }));
    const best = { name: "best", kind: "ink wide dashed", ...run.curves.best_return };
    const heldOut = { name: "mean from new starts", kind: `${colour(run.members.length)} wide`, ...run.curves.held_out_return };
    const made = [section("returns", "Returns",
      chart("returns-chart", "Return of each member, and of the best", "iteration",
        [...members, best, ...(heldOut.x.length ? [heldOut] : [])], now))];
    const control = [];
    if (run.curves.lambda.x.length) control.push(one("lambda-chart", "lambda, the weight of diversity", "lambda"));
    if (run.arms.length) {
      control.push(chart("arms-chart", "Posterior of each arm: the chance that returns rise; mean and 90 % interval", "iteration",
        run.arms.map((arm, i) => ({ name: arm.label, kind: colour(i), ...arm.mean, low: arm.low.y, high: arm.high.y })), now));
    }
    if (control.length) made.push(section("control", "Lambda", html("div", { class: "grid" }, control)));
    const kinds = { log_det_per_member: "log det / M", vendi_1: "Vendi score: the effective number of different members",
      min_distance: "Smallest distance between two members" };
    const diversity = Object.entries(kinds).filter(([key]) => run.curves[key].x.length)
      .map(([key, name], i) => one(`${key}-chart`, name, key, colour(i)));
    if (diversity.length) made.push(section("diversity", "Diversity", html("div", { class: "grid" }, diversity)));
    if (run.thinned) {
      made.at(-1).append(html("p", { class: "note" }, `The curves show ${shown(run.lines)} iterations in ${data.buckets} parts, with the smallest and the largest value of each part. All values are in metrics.jsonl.`));
    }
    return made;
  }

  function pair(size, i, j) {
    const [a, b] = i < j ? [i, j] : [j, i];
    return a * size - (a * (a + 1)) / 2 + b - a - 1;
  }

  // The slider, the heat map, the map and the cards show the same iteration.
  function behaviours(run) {
    const frames = run.frames, size = frames[0].returns.length;
    const input = html("input", { type: "range", id: "slider", min: 0, max: frames.length - 1, step: 1, "aria-label": "Iteration",
      disabled: frames.length === 1 });
    const output = html("output", { for: "slider" });
    const play = html("button", { type: "button", id: "play", disabled: frames.length === 1 }, "Play");
    const cells = [];
    const table = html("table", { class: "heat", id: "heat" },
      html("tr", {}, html("th", {}), Array.from({ length: size }, (_, j) => html("th", { scope: "col" }, String(j)))),
      Array.from({ length: size }, (_, i) => html("tr", {}, html("th", { scope: "row" }, String(i)),
        Array.from({ length: size }, (_, j) => {
          const cell = html("td");
          cells.push([cell, i, j]);
          return cell;
        }))));

    let reach = 0;
    for (const frame of frames) for (const [x, y] of frame.map) reach = Math.max(reach, Math.abs(x), Math.abs(y));
    reach = reach * 1.15 || 1;
    const px = (x) => 150 + (x / reach) * 140, py = (y) => 150 - (y / reach) * 140;
    const places = [], trails = [];
    const picture = svg("svg", { viewBox: "0 0 300 300", class: "map", role: "img", "aria-label": "Map of the members' behaviours" },
      svg("rect", { class: "axis", x: 5, y: 5, width: 290, height: 290 }),
      Array.from({ length: size }, (_, i) => trails[i] = svg("polyline", { class: `trail ${colour(i)}` })),
      Array.from({ length: size }, (_, i) => places[i] = svg("g", {},
        svg("circle", { class: `place ${colour(i)}`, r: 8 }), svg("text", { x: 11, y: 4 }, String(i)))));

    function show(index) {
      const frame = frames[index];
      state.frame = index;
      input.value = index;
      input.setAttribute("aria-valuetext", `iteration ${frame.iteration}`);
      output.textContent = `iteration ${shown(frame.iteration)}`;
      for (const [cell, i, j] of cells) {
        const value = i === j ? 1 : frame.similarities[pair(size, i, j)];
        cell.textContent = size <= 12 ? value.toFixed(2) : "";
        cell.title = `members ${i} and ${j}: ${shown(value)}`;
        cell.className = value < 0 ? "negative" : "";
        cell.style.setProperty("--p", Math.min(1, Math.abs(value)));
      }
      for (let i = 0; i < size; i++) {
        const [x, y] = frame.map[i];
        places[i].setAttribute("transform", `translate(${px(x)} ${py(y)})`);
        trails[i].setAttribute("points", frames.slice(Math.max(0, index - 15), index + 1)
          .map((each) => `${px(each.map[i][0]).toFixed(1)},${py(each.map[i][1]).toFixed(1)}`).join(" "));
      }
      for (const figure of document.querySelectorAll("figure")) figure.mark?.(frame.iteration);
      cards(run, frame);
    }
    input.addEventListener("input", () => { stop(); show(Number(input.value)); });
    play.addEventListener("click", () => {
      if (state.timer !== null) return stop();
      if (state.frame === frames.length - 1) show(0);
      play.textContent = "Pause";
      state.timer = setInterval(() => (state.frame < frames.length - 1 ? show(state.frame + 1) : stop()), 80);
    });
    function stop() {
      clearInterval(state.timer);
      state.timer = null;
      play.textContent = "Play";
    }
    settle = () => show(Math.min(state.frame ?? Infinity, frames.length - 1));
    const some = frames.length < run.lines ? ` The slider has ${frames.length} of ${shown(run.lines)} iterations.` : "";
    return section("behaviour", "Behaviours over time",
      html("div", { class: "slider" }, play, input, output),
      html("div", { class: "grid" },
        html("figure", {}, html("figcaption", {}, "Gram matrix: similarity of each pair of members"), html("div", { class: "scroll" }, table)),
        html("figure", {}, html("figcaption", {}, "Map of behaviours: members that are close behave alike (multidimensional scaling, each map rotated to fit the one before)"), picture)),
      some ? html("p", { class: "note" }, some.trim()) : null);
  }

  // ---- what niche-ES ends with, and what became of its members

  function niches(run) {
    const { coordinates, relevance } = run.niches;
    state.axes ??= [0, Math.min(1, coordinates.length - 1)];
    const host = html("div", {}, places(run));
    const choose = ["x", "y"].map((name, axis) => {
      const select = html("select", { id: `axis-${name}` },
        coordinates.map((each, i) => html("option", { value: i }, `${each} (${relevance[i].toFixed(2)})`)));
      select.value = state.axes[axis];
      select.addEventListener("change", () => {
        state.axes[axis] = Number(select.value);
        host.replaceChildren(places(run));
        redraws.at(-1)();
      });
      return html("label", {}, `${name}-axis `, select);
    });
    return section("niches", "Niches", html("p", { class: "note" },
      "The members with which the run would end now: the best of all lives. They have numbers of their own, which are not those of the present members in the figures above. Coordinates are in their own units; in parentheses is how much of the return each explains."),
    html("div", { class: "controls" }, choose),
    html("div", { class: "grid" }, host, run.lives ? lives(run) : null));
  }

  function places(run) {
    const { coordinates, places: all, distinct, returns } = run.niches;
    const [first, second] = state.axes;
    const caption = `Where the members are: ${coordinates[first]} and ${coordinates[second]}. Filled: good and different; open: not`;
    const figure = html("figure", { id: "places" });
    const holder = html("div"), tip = html("div", { class: "tip", hidden: true, "aria-live": "polite" });
    figure.append(html("figcaption", {}, caption), holder, tip);
    redraws.push(() => {
      const width = Math.max(200, holder.clientWidth || 600), height = 320;
      const xs = all.map((place) => place[first]), ys = all.map((place) => place[second]);
      const { left, top, px, py, drawn } = plot(width, height, widened(extent([xs])), widened(extent([ys])), coordinates[first]);
      const marks = all.map((_, i) => svg("g", { transform: `translate(${px(xs[i])} ${py(ys[i])})` },
        svg("circle", { class: `place ${colour(i)}${distinct[i] ? "" : " open"}`, r: 8 }), svg("text", { x: 11, y: 4 }, String(i))));
      const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0,
        "aria-label": `${caption}. Use the arrow keys to read values.` }, drawn,
      svg("text", { x: left + 4, y: top + 10 }, coordinates[second]), marks);
      holder.replaceChildren(picture);
      let at = null; // the member that is read
      function read(member) {
        at = member;
        tip.hidden = at === null;
        if (tip.hidden) return;
        tell(figure, tip, px(xs[at]) / width, [
          [html("span", { class: `swatch ${colour(at)}` }), `member ${at}: ${distinct[at] ? "distinct" : "not distinct"}`],
          [`${coordinates[first]}: ${shown(xs[at])}`], [`${coordinates[second]}: ${shown(ys[at])}`], [`return: ${shown(returns[at])}`]]);
      }
      picture.addEventListener("pointermove", (event) => {
        const box = picture.getBoundingClientRect(), scale = width / box.width;
        const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
        const away = all.map((_, i) => Math.hypot(px(xs[i]) - x, py(ys[i]) - y));
        const near = away.indexOf(Math.min(...away));
        read(away[near] < 30 ? near : null);
      });
      picture.addEventListener("pointerleave", () => read(null));
      picture.addEventListener("blur", () => read(null));
      picture.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        read(at === null ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + step)));
      });
    });
    return figure;
  }

  // A row for each present member: a bar while it is distinct, a dot where it begins anew.
  function lives(run) {
    const { x, distinct, renewed } = run.lives;
    const rows = distinct.map((_, i) => String(i));
    const series = distinct.map((stretches, i) => {
      const y = x.map(() => null);
      for (const [from, to] of stretches) y.fill(i, from, to);
      return { name: `member ${i}`, kind: `bar ${colour(i)}`, x, y, say: (at) => (y[x.indexOf(at)] === null ? "–" : "distinct") };
    });
    const points = renewed.flatMap((indices, i) => indices.map((index) => [x[index], i]));
    if (points.length) {
      series.push({ name: "renewed", kind: "ink", x: points.flatMap(([at]) => [at, null]), y: points.flatMap(([, i]) => [i, null]),
        say: (at) => points.filter(([when]) => when === at).map(([, i]) => `member ${i}`).join(", ") || "–" });
    }
    return chart("lives-chart", "Present members: when each was good and different (bars), and when it began anew (dots)",
      "iteration", series, () => run.frames[state.frame]?.iteration ?? null, rows);
  }

  function nearestOther(frame, member) {
    const size = frame.returns.length;
    let best = null;
    for (let other = 0; other < size; other++) {
      if (other === member) continue;
      const distance = frame.distances[pair(size, member, other)];
      if (best === null || distance < best.distance) best = { other, distance };
    }
    return best;
  }

  function cards(run, frame) {
    if (run.niches) return; // they do not depend on the iteration
    const latest = run.members.map((curve) => curve.y.at(-1));
    const returns = frame ? frame.returns : latest;
    returns.forEach((value, member) => {
      const near = frame ? nearestOther(frame, member) : null;
      document.getElementById(`return-${member}`).textContent = `return ${shown(value)}`;
      document.getElementById(`near-${member}`).textContent =
        near ? `nearest: member ${near.other}, at ${shown(near.distance)}` : "";
      const distinct = (frame ?? run).distinct;
      document.getElementById(`distinct-${member}`).textContent = distinct ? (distinct[member] ? "distinct" : "not distinct") : "";
    });
  }

  // Two numbers with few digits, but enough to tell them apart.
  function apart(a, b) {
    for (let digits = 2; digits < 8; digits++) {
      const [one, other] = [a, b].map((value) => shown(Number(value.toPrecision(digits))));
      if (one !== other || digits === 7) return [one, other];
    }
  }

  function elite(run, i) {
    const { returns, shares, distinct, differences } = run.niches;
    return [html("p", { id: `return-${i}` }, `return ${shown(returns[i])}`),
      html("p", { id: `distinct-${i}` }, `${distinct[i] ? "distinct" : "not distinct"}, share ${shares[i].toFixed(2)}`),
      differences[i].map(({ member, coordinate, here, there }) =>
        html("p", { class: "note" }, `differs from member ${member} in ${coordinate}: ${apart(here, there).join(" and ")}`))];
  }

  function members(run) {
    const films = videos.get(run.name) ?? {};
    const all = films.tiled ? html("video", { controls: true, loop: true, muted: true, playsinline: true, preload: "auto",
      class: "tiled", src: films.tiled, "aria-label": "All members side by side" }) : null;
    return section("members", "Members", html("div", { class: "cards" }, (run.niches?.returns ?? run.members).map((_, i) =>
      html("div", { class: `card ${colour(i)}` }, html("h3", {}, `member ${i}`),
        run.niches ? elite(run, i) : ["return", "near", "distinct"].map((name) => html("p", { id: `${name}-${i}` })),
        films[i] ? html("video", { controls: true, loop: true, muted: true, playsinline: true, preload: "auto", src: films[i],
          "aria-label": `Member ${i}` }) : null))), all);
  }

  function paths(run) {
    const { walls, goal, members: routes, returns } = run.paths;
    let reach = 0;
    for (const [, y, , height] of walls) reach = Math.max(reach, Math.abs(y), Math.abs(y + height));
    for (const route of routes) for (const [, y] of route) reach = Math.max(reach, Math.abs(y));
    const [x0, x1] = extent([[-2, goal[0] + 2], ...routes.map((route) => route.map(([x]) => x))]);
    reach += 1;
    const unit = 20;
    const picture = svg("svg", { viewBox: `${x0 * unit} ${-reach * unit} ${(x1 - x0) * unit} ${2 * reach * unit}`, role: "img",
      "aria-label": "Paths of the members, seen from above" },
    walls.map(([x, y, width, height]) => svg("rect", { class: "wall", x: x * unit, y: -(y + height) * unit, width: width * unit, height: height * unit })),
    svg("circle", { class: "goal", cx: goal[0] * unit, cy: -goal[1] * unit, r: 0.6 * unit }),
    routes.map((route, i) => svg("polyline", { class: `line ${colour(i)}`, "stroke-width": 5, "vector-effect": "non-scaling-stroke",
      points: route.map(([x, y]) => `${(x * unit).toFixed(1)},${(-y * unit).toFixed(1)}`).join(" ") },
    svg("title", {}, `member ${i}: ${shown(returns[i])}`))));
    return section("paths", "Paths around the wall", html("figure", {},
      html("figcaption", {}, "The current members, from the same start, seen from above; the goal is green"), picture,
      html("div", { class: "legend" }, returns.map((value, i) => html("span", {}, html("span", { class: `swatch ${colour(i)}` }), `member ${i}: ${shown(value)}`)))));
  }

  function making(run) {
    const facts = (title, values) => html("details", {}, html("summary", {}, title), html("table", { class: "facts" },
      Object.entries(values).map(([key, value]) => html("tr", {}, html("th", { scope: "row" }, key), html("td", {}, value)))));
    const { command: typed, ...made } = run.record;
    return section("making", "How it was made",
      typed ? [html("p", { class: "note" }, "Started with"), html("pre", { id: "typed" }, typed)] : [],
      html("p", { class: "note" }, "Repeated by"), html("pre", { id: "command" }, run.command),
      facts("Configuration", run.config), Object.keys(made).length ? facts("Versions", made) : null);
  }

  // ---- the page

  function show() {
    clearInterval(state.timer);
    state.timer = null;
    redraws = [];
    settle = () => {};
    state.run = Math.min(state.run, data.runs.length - 1);
    const run = data.runs[state.run];
    document.getElementById("title").textContent = `${run.algorithm} on ${run.task}`;
    document.getElementById("status").textContent = run.lines
      ? `${run.name}: ${shown(run.lines)} iteration${run.lines === 1 ? "" : "s"}` : `${run.name}: no iteration yet`;
    const parts = data.comparison ? [comparison()] : [];
    if (run.lines) {
      parts.push(overview(run), ...curves(run));
      if (run.frames.length) parts.push(behaviours(run));
      else settle = () => cards(run, null);
      if (run.niches) parts.push(niches(run));
      parts.push(members(run));
    }
    if (run.paths) parts.push(paths(run));
    parts.push(making(run));
    document.getElementById("main").replaceChildren(...parts);
    for (const redraw of redraws) redraw();
    settle();
  }

  const choose = document.getElementById("run");
  choose.append(...data.runs.map((run, i) => html("option", { value: i }, run.name)));
  document.getElementById("choose").hidden = data.runs.length < 2;
  choose.addEventListener("change", () => {
    state.run = Number(choose.value);
    state.frame = null;
    state.axes = null;
    show();
  });

  const root = document.documentElement, button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  function theme(name) {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use ${name === "dark" ? "light" : "dark"} colours`);
  }
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  button.addEventListener("click", () => theme(root.dataset.theme === "dark" ? "light" : "dark"));

  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    for (const redraw of redraws) redraw();
  });

  show();
  performance.mark("rendered");

  if (watched) {
    let version = null;
    const poll = async () => {
      try {
        const response = await fetch("data.json", { headers: version ? { "If-None-Match": version } : {} });
        if (response.status === 200) {
          version = response.headers.get("ETag");
          const before = data.runs[state.run];
          const atEnd = state.frame === null || state.frame >= before.frames.length - 1;
          data = await response.json();
          if (atEnd) state.frame = null;
          show();
        }
      } catch {
        document.getElementById("status").textContent = "dvdrl report does not answer. The page shows the last data.";
      }
      setTimeout(poll, 2000);
    };
    setTimeout(poll, 2000);
  }
})();
