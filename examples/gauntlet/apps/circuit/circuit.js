'use strict';
// An editor of logic circuits, with the export of CircuitJS: a part is its tag and
// two points, of which the first is where an input or an output is connected.

const grid = 16;
const tools = {
  Select: 'Escape', Input: 'i', Output: 'o', AND: 'a', OR: 'r', NAND: 'n', NOR: 'q', XOR: 'x', XNOR: 'z', NOT: 't', Wire: 'w', Delete: 'd',
};
const gates = {AND: 'And', OR: 'Or', NAND: 'Nand', NOR: 'Nor', XOR: 'Xor', XNOR: 'Xnor', NOT: 'I', Input: 'L', Output: 'M'};

const store = kept('circuit', exported);
let doc, tool = 'Select', selected = -1, from = null, mouse = [0, 0];

const $ = id => document.getElementById(id);
const board = $('board'), ink = board.getContext('2d');

function exported(d) {
  return '<cir f="1" ts="0.000005" ic="10.2" cb="50" pb="50">' +
    d.parts.map(p => `<${p.tag} x="${p.x.join(' ')}" f="0"${two(p) ? ' in="2"' : ''}/>`).join('') + '</cir>';
}
// The way in which CircuitJS is asked for its export.
window.CircuitJS1 = {exportCircuit: () => exported(doc)};

const two = p => ['And', 'Or', 'Nand', 'Nor', 'Xor', 'Xnor'].includes(p.tag);

// inputs are the points of a part that read.
function inputs(p) {
  const [x, y] = p.x;
  if (two(p)) return [[x, y - grid], [x, y + grid]];
  return p.tag === 'I' || p.tag === 'M' ? [[x, y]] : [];
}

// output is the point of a part that drives; null: it has none.
function output(p) {
  if (p.tag === 'L') return [p.x[0], p.x[1]];
  return two(p) || p.tag === 'I' ? [p.x[2], p.x[3]] : null;
}

function changed() {
  store.save(doc);
  draw();
}

function place(x, y) {
  const tag = gates[tool];
  const to = {L: [x - 32, y], M: [x + 32, y]}[tag] || [x + 64, y];
  doc.parts.push({tag, x: [x, y, ...to]});
  changed();
}

// near returns the part under a point; -1: there is none.
function near(x, y) {
  const distance = p => {
    const [x1, y1, x2, y2] = p.x, dx = x2 - x1, dy = y2 - y1, length = dx * dx + dy * dy || 1;
    const t = Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / length));
    return Math.hypot(x - x1 - t * dx, y - y1 - t * dy);
  };
  let best = -1, least = 20;
  doc.parts.forEach((p, i) => {
    const d = distance(p) + (p.tag === 'w' ? 2 : 0); // a gate goes before its wires
    if (d < least) [best, least] = [i, d];
  });
  return best;
}

function remove(i) {
  if (i < 0) return;
  doc.parts.splice(i, 1);
  selected = -1;
  changed();
}

function choose(name) {
  [tool, from, selected] = [name, null, -1];
  for (const b of $('tools').querySelectorAll('button')) b.classList.toggle('on', b.dataset.tool === name);
  draw();
}

const point = e => {
  const box = board.getBoundingClientRect();
  return [e.clientX - box.left, e.clientY - box.top];
};
const snap = v => Math.round(v / grid) * grid;

board.addEventListener('pointerdown', e => {
  const [px, py] = point(e), x = snap(px), y = snap(py);
  board.focus();
  if (tool === 'Select') { selected = near(px, py); draw(); return; }
  if (tool === 'Delete') { remove(near(px, py)); return; }
  if (tool !== 'Wire') { place(x, y); return; }
  if (from) finish(x, y);
  else { from = [x, y]; draw(); }
});
board.addEventListener('pointermove', e => {
  mouse = point(e).map(snap);
  if (from) draw();
});
board.addEventListener('pointerup', e => {
  const [x, y] = point(e).map(snap);
  if (tool === 'Wire' && from && (x !== from[0] || y !== from[1])) finish(x, y);
});

function finish(x, y) {
  const [x1, y1] = from;
  from = null;
  if (x !== x1 || y !== y1) doc.parts.push({tag: 'w', x: [x1, y1, x, y]});
  changed();
}

document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.altKey || e.metaKey) return;
  if ((e.key === 'Delete' || e.key === 'Backspace') && selected >= 0) { remove(selected); return; }
  const found = Object.entries(tools).find(([, key]) => key === e.key);
  if (found) choose(found[0]);
});

function line(...points) {
  ink.beginPath();
  points.forEach(([x, y], i) => i ? ink.lineTo(x, y) : ink.moveTo(x, y));
  ink.stroke();
}

function dot(x, y, r) {
  ink.beginPath();
  ink.arc(x, y, r, 0, 7);
  ink.fill();
}

// drawGate draws the shape of a gate between its pins and its output.
function drawGate(p) {
  const [x, y, x2] = p.x, inverted = ['Nand', 'Nor', 'Xnor', 'I'].includes(p.tag), kind = p.tag.replace('N', '').replace('X', '').toLowerCase();
  const a = x + 12, b = x2 - (inverted ? 18 : 12);
  ink.beginPath();
  if (p.tag === 'I') {
    ink.moveTo(a, y - 14); ink.lineTo(b, y); ink.lineTo(a, y + 14); ink.closePath();
  } else if (kind === 'and') {
    ink.moveTo(a, y - 24); ink.lineTo(b - 20, y - 24);
    ink.bezierCurveTo(b + 6, y - 24, b + 6, y + 24, b - 20, y + 24);
    ink.lineTo(a, y + 24); ink.closePath();
  } else {
    ink.moveTo(a - 2, y - 24);
    ink.quadraticCurveTo(b - 8, y - 24, b, y); ink.quadraticCurveTo(b - 8, y + 24, a - 2, y + 24);
    ink.quadraticCurveTo(a + 10, y, a - 2, y - 24);
  }
  ink.fillStyle = '#fff';
  ink.fill();
  ink.stroke();
  if (p.tag.startsWith('X')) {
    ink.beginPath(); ink.moveTo(a - 8, y - 24); ink.quadraticCurveTo(a + 4, y, a - 8, y + 24); ink.stroke();
  }
  if (inverted) {
    ink.beginPath(); ink.arc(b + 5, y, 5, 0, 7); ink.fill(); ink.stroke();
  }
  for (const [ix, iy] of inputs(p)) line([ix, iy], [a + (kind === 'and' || p.tag === 'I' ? 0 : 4), iy]);
  line([b + (inverted ? 10 : 0), y], [x2, y]);
  ink.fillStyle = '#486581';
  ink.font = '10px sans-serif';
  ink.textAlign = 'center';
  if (two(p)) ink.fillText(p.tag.toUpperCase(), (a + b) / 2, y + 4);
}

function draw() {
  ink.clearRect(0, 0, board.width, board.height);
  ink.fillStyle = '#cbd2d9';
  for (let x = grid; x < board.width; x += grid) for (let y = grid; y < board.height; y += grid) ink.fillRect(x, y, 1, 1);
  let in_ = 0, out = 0;
  doc.parts.forEach((p, i) => {
    ink.strokeStyle = i === selected ? '#2680c2' : '#243b53';
    ink.lineWidth = i === selected ? 4 : 2;
    const [x1, y1, x2, y2] = p.x;
    if (p.tag === 'w') line([x1, y1], [x2, y2]);
    else if (p.tag === 'L' || p.tag === 'M') {
      line([x1, y1], [x2, y2]);
      ink.fillStyle = p.tag === 'L' ? '#27ab83' : '#e12d39';
      dot(x2, y2, 12);
      ink.fillStyle = '#fff';
      ink.font = 'bold 13px sans-serif';
      ink.textAlign = 'center';
      ink.fillText(p.tag === 'L' ? 'ABCDEFGH'[in_++ % 8] : 'Y' + ++out, x2, y2 + 5);
    } else drawGate(p);
    ink.fillStyle = '#243b53';
    for (const [x, y] of [...inputs(p), output(p) || [x1, y1], ...(p.tag === 'w' ? [[x2, y2]] : [])]) dot(x, y, 3);
  });
  if (from) {
    ink.strokeStyle = '#f0b429';
    line(from, mouse);
  }
  $('name').textContent = doc.name;
  table();
}

// table shows what the outputs are for each row of inputs.
function table() {
  const parts = [make('div', {class: 'title', style: {left: '16px', top: '20px'}}, 'Truth table')];
  const say = text => parts.push(make('div', {class: 'hint', style: at(16, 46, 180)}, text));
  const ins = doc.parts.filter(p => p.tag === 'L'), outs = doc.parts.filter(p => p.tag === 'M');
  if (!ins.length || !outs.length) say('Draw inputs and outputs.');
  else if (ins.length > 4) say('It is shown for at most 4 inputs.');
  else {
    const rows = [[...ins.map((_, i) => 'ABCD'[i]), ...outs.map((_, i) => 'Y' + (i + 1))]];
    for (let r = 0; r < 1 << ins.length; r++) {
      const bits = ins.map((_, i) => r >> (ins.length - 1 - i) & 1), value = evaluate(ins, bits);
      rows.push([...bits, ...outs.map(o => { const v = value([o.x[0], o.x[1]], 0); return v < 0 ? '?' : v; })]);
    }
    parts.push(make('table', {style: {position: 'absolute', left: '16px', top: '46px'}}, ...rows.map((row, i) =>
      make('tr', {}, ...row.map(v => make(i ? 'td' : 'th', {}, String(v)))))));
  }
  $('table').replaceChildren(...parts);
}

// evaluate returns a function that tells the value at a point; -1: unknown.
function evaluate(ins, bits) {
  const net = new Map(), key = p => p.join();
  const find = k => { while (net.has(k) && net.get(k) !== k) k = net.get(k); return k; };
  for (const w of doc.parts.filter(p => p.tag === 'w')) net.set(find(key(w.x.slice(0, 2))), find(key(w.x.slice(2))));
  const value = (at, depth) => {
    if (depth > 50) return -1;
    const here = find(key(at)), p = doc.parts.find(q => output(q) && find(key(output(q))) === here);
    if (!p) return -1;
    if (p.tag === 'L') return bits[ins.indexOf(p)];
    const v = inputs(p).map(i => value(i, depth + 1));
    if (v.includes(-1)) return -1;
    const [a, b] = v;
    return {And: a & b, Or: a | b, Xor: a ^ b, Nand: 1 - (a & b), Nor: 1 - (a | b), Xnor: 1 - (a ^ b), I: 1 - a}[p.tag];
  };
  return value;
}

store.open().then(opened => {
  doc = opened;
  $('tools').append(make('div', {class: 'title', style: {left: '20px', top: '20px'}}, 'Tools'));
  Object.entries(tools).forEach(([name, key], i) => $('tools').append(make('button', {
    'data-tool': name, style: at(20, 46 + 44 * i, 140, 36), onclick: () => choose(name),
  }, `${name} (${key === 'Escape' ? 'Esc' : key})`)));
  choose('Select');
});
