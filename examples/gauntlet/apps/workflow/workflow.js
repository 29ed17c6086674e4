'use strict';
// An editor of workflows: nodes with data, and edges from their outputs.

const kinds = {
  trigger: {title: 'Trigger', colour: '#27ab83', data: {event: ''}, outputs: ['trigger']},
  condition: {title: 'Condition', colour: '#f0b429', data: {field: '', operator: '>', value: 0}, outputs: ['onTrue', 'onFalse']},
  email: {title: 'Email', colour: '#2680c2', data: {to: '', subject: ''}, outputs: ['default']},
  delay: {title: 'Delay', colour: '#9446ed', data: {minutes: 0}, outputs: ['default']},
  approval: {title: 'Approval', colour: '#e12d39', data: {role: '', required: false}, outputs: ['default']},
};
const operators = ['>', '<', '='];
const labels = {default: 'Output', trigger: 'Output', onTrue: 'True output', onFalse: 'False output'};
const width = 150, height = 56;

const store = kept('workflow', doc => ({name: doc.name, graph: {nodes: doc.nodes, edges: doc.edges}}));
let doc, selected = null, pending = null, dragged = null;

const $ = id => document.getElementById(id);
const node = id => doc.nodes.find(n => n.id === id);
const nameOf = n => kinds[n.type].title + ' ' + n.id;

function changed() {
  store.save(doc);
  draw();
}

function add(type) {
  const n = doc.next++;
  const added = {id: 'n' + (n + 1), type, position: {x: 40 + n % 3 * 240, y: 42 + Math.floor(n / 3) * 130}, data: {...kinds[type].data}};
  doc.nodes.push(added);
  selected = added.id;
  changed();
  inspect();
}

function remove(id) {
  doc.nodes = doc.nodes.filter(n => n.id !== id);
  doc.edges = doc.edges.filter(e => e.id !== id && e.source !== id && e.target !== id);
  selected = pending = null;
  changed();
  inspect();
}

function connect(target) {
  const {source, handle} = pending;
  pending = null;
  const same = e => e.source === source && e.sourceHandle === handle && e.target === target;
  if (source !== target && !doc.edges.some(same)) {
    doc.edges.push({id: `e-${source}-${handle}-${target}`, source, sourceHandle: handle, target, targetHandle: 'in'});
  }
  changed();
}

function select(id) {
  selected = id;
  draw();
  inspect();
}

// outputY is where an output is, from the top of its node.
function outputY(n, handle) {
  const list = kinds[n.type].outputs;
  return list.length === 1 ? height / 2 : 16 + 24 * list.indexOf(handle);
}

function describe(n) {
  const d = n.data;
  return {trigger: d.event, condition: `${d.field} ${d.operator} ${d.value}`, email: d.to, delay: d.minutes + ' min', approval: d.role}[n.type] || '…';
}

function drawNode(n) {
  const box = make('div', {
    class: 'node' + (selected === n.id ? ' on' : ''), role: 'button', 'aria-label': `${nameOf(n)}: ${describe(n)}`,
    style: {left: n.position.x + 'px', top: n.position.y + 'px', borderLeftColor: kinds[n.type].colour},
  }, make('b', {}, nameOf(n)), make('span', {}, describe(n)));
  box.addEventListener('pointerdown', e => {
    if (e.target.classList.contains('port')) return;
    dragged = {n, x: e.clientX - n.position.x, y: e.clientY - n.position.y};
  });
  box.addEventListener('pointerup', () => {
    if (pending && pending.source !== n.id) connect(n.id);
  });
  const port = (x, y, name, down) => make('button', {
    class: 'port', 'aria-label': `${name} of ${nameOf(n)}`, style: at(x - 8, y - 10, 16, 16), onpointerdown: down,
  });
  box.append(port(-6, height / 2, 'Input', () => {}));
  for (const handle of kinds[n.type].outputs) {
    const p = port(width - 6, outputY(n, handle), labels[handle], () => {
      pending = {source: n.id, handle};
      draw();
    });
    if (pending && pending.source === n.id && pending.handle === handle) p.classList.add('pending');
    box.append(p);
  }
  return box;
}

function draw() {
  $('name').textContent = doc.name;
  const lines = make('svg:svg', {});
  for (const e of doc.edges) {
    const a = node(e.source), b = node(e.target);
    const x1 = a.position.x + width, y1 = a.position.y + outputY(a, e.sourceHandle), x2 = b.position.x, y2 = b.position.y + height / 2;
    const bend = Math.max(40, Math.abs(x2 - x1) / 2);
    lines.append(make('svg:path', {
      d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`, class: selected === e.id ? 'on' : '',
      role: 'button', 'aria-label': `Edge from ${labels[e.sourceHandle]} of ${nameOf(a)} to ${nameOf(b)}`, onclick: () => select(e.id),
    }));
  }
  $('canvas').replaceChildren(lines, ...doc.nodes.map(drawNode));
}

function inspect() {
  const parts = [make('div', {class: 'title', style: {left: '20px', top: '20px'}}, 'Properties')];
  const n = selected && node(selected);
  if (n) {
    parts.push(make('b', {style: at(20, 46)}, nameOf(n)));
    let y = 82;
    for (const [key, value] of Object.entries(n.data)) {
      if (key === 'operator') {
        parts.push(make('label', {style: at(20, y)}, key));
        operators.forEach((o, i) => parts.push(make('button', {
          class: value === o ? 'on' : '', 'aria-label': 'operator ' + o, style: {...at(20 + 60 * i, y + 20, 52, 32), textAlign: 'center'},
          onclick: () => { n.data.operator = o; changed(); inspect(); },
        }, o)));
      } else {
        parts.push(...field(key, value, [20, y, 278], v => { n.data[key] = v; changed(); }));
      }
      y += 64;
    }
    parts.push(make('button', {class: 'danger', style: at(20, 600, 278, 40), onclick: () => remove(n.id)}, 'Delete node'));
  } else if (selected) {
    parts.push(make('b', {style: at(20, 46)}, 'Edge'));
    parts.push(make('button', {class: 'danger', style: at(20, 600, 278, 40), onclick: () => remove(selected)}, 'Delete edge'));
  } else {
    parts.push(make('div', {class: 'hint', style: at(20, 46, 278)}, 'Click a node to edit it. Click an output, then a node, to connect them.'));
  }
  $('inspector').replaceChildren(...parts);
}

document.addEventListener('pointermove', e => {
  if (!dragged || !e.buttons) return;
  const to = (v, most) => Math.max(0, Math.min(most, Math.round(v / 10) * 10));
  dragged.n.position = {x: to(e.clientX - dragged.x, 780 - width), y: to(e.clientY - dragged.y, 660 - height)};
  draw();
});
document.addEventListener('pointerup', () => {
  if (!dragged) return;
  const {n} = dragged;
  dragged = null;
  selected = n.id;
  changed();
  inspect();
});
document.addEventListener('keydown', e => {
  if (e.target.tagName === 'INPUT' || !selected) return;
  if (e.key === 'Delete' || e.key === 'Backspace') remove(selected);
  if (e.key === 'Escape') { pending = null; select(null); }
});
$('canvas').addEventListener('click', e => {
  if (e.target.id !== 'canvas' && e.target.tagName !== 'svg') return;
  pending = null;
  select(null);
});

store.open().then(opened => {
  doc = opened;
  $('palette').append(make('div', {class: 'title', style: {left: '20px', top: '20px'}}, 'Add a node'));
  Object.entries(kinds).forEach(([type, k], i) => $('palette').append(make('button', {
    style: {...at(20, 46 + 50 * i, 140, 40), borderLeft: '8px solid ' + k.colour}, onclick: () => add(type),
  }, k.title)));
  draw();
  inspect();
});
