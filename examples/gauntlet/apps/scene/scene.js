'use strict';
// An editor of 3D scenes that are made of simple shapes.

const store = kept('scene', doc => ({scenes: [{name: doc.name, scene: {objects: doc.objects, settings: doc.settings}}]}));
let doc, selected = null, camera = {turn: 0.6, tilt: 0.45, distance: 9}, held = null;

const $ = id => document.getElementById(id);
const view = $('view'), ink = view.getContext('2d');

function changed() {
  store.save(doc);
  draw();
}

function add(type) {
  const n = ++doc.next;
  const o = {
    id: 'o' + n, name: type[0].toUpperCase() + type.slice(1) + ' ' + n, type, position: [0, type === 'plane' ? 0 : 0.5, 0], rotation: [0, 0, 0], scale: [1, 1, 1],
    color: '#9fb3c8', opacity: 1, wireframe: false, visible: true, locked: false,
  };
  doc.objects.push(o);
  selected = o.id;
  changed();
  list();
  inspect();
}

function remove() {
  doc.objects = doc.objects.filter(o => o.id !== selected);
  selected = null;
  changed();
  list();
  inspect();
}

function select(id) {
  selected = id;
  draw();
  list();
  inspect();
}

function list() {
  const parts = [make('div', {class: 'title', style: {left: '16px', top: '16px'}}, 'Add')];
  Object.keys(shapes).forEach((type, i) => parts.push(make('button', {
    style: {...at(16 + 84 * (i % 2), 38 + 40 * Math.floor(i / 2), 80, 34), padding: '0 8px'}, onclick: () => add(type),
  }, type[0].toUpperCase() + type.slice(1))));
  parts.push(make('div', {class: 'title', style: {left: '16px', top: '172px'}}, 'Objects'));
  doc.objects.forEach((o, i) => parts.push(make('button', {
    class: o.id === selected ? 'on' : '', style: at(16, 194 + 38 * i, 164, 32), onclick: () => select(o.id),
  }, o.name)));
  $('objects').replaceChildren(...parts);
}

function inspect() {
  const parts = [], o = doc.objects.find(o => o.id === selected);
  const title = (text, y) => parts.push(make('div', {class: 'title', style: {left: '20px', top: y + 'px'}}, text));
  const put = (...all) => parts.push(...field(...all));
  title('Scene', 16);
  const s = doc.settings;
  for (const [key, x] of [['showGrid', 20], ['showAxes', 160]]) put(key, s[key], [x, 20], v => { s[key] = v; changed(); });
  put('backgroundColor', s.backgroundColor, [20, 76, 134], v => { s.backgroundColor = v; changed(); });
  put('fov', s.fov, [164, 76, 134], v => { s.fov = v; changed(); });
  if (!o) {
    parts.push(make('div', {class: 'hint', style: at(20, 160, 278)}, 'Choose an object in the list to edit it. Drag the view to turn it.'));
    $('inspector').replaceChildren(...parts);
    return;
  }
  title(o.type, 152);
  put('name', o.name, [20, 172, 278], v => { o.name = v; changed(); list(); });
  ['position', 'rotation', 'scale'].forEach((key, r) => [0, 1, 2].forEach(i => {
    put(`${key} ${'xyz'[i]}`, o[key][i], [20 + 96 * i, 236 + 62 * r, 86], v => { o[key][i] = v; changed(); });
  }));
  put('color', o.color, [20, 422, 134], v => { o.color = v; changed(); });
  put('opacity', o.opacity, [164, 422, 134], v => { o.opacity = Math.max(0, Math.min(1, v)); changed(); });
  put('wireframe', o.wireframe, [20, 472], v => { o.wireframe = v; changed(); });
  parts.push(make('button', {class: 'danger', style: at(20, 610, 278, 40), onclick: remove}, 'Delete object'));
  $('inspector').replaceChildren(...parts);
}

// seen projects a point of the scene; its third number is how far away it is.
function seen(p) {
  let [x, y, z] = turned(p, [0, -camera.turn, 0]);
  [, y, z] = turned([x, y - 0.5, z], [camera.tilt, 0, 0]);
  const away = camera.distance - z, f = 336 / Math.tan(Math.max(10, Math.min(120, doc.settings.fov)) * Math.PI / 360);
  return [380 + f * x / Math.max(0.1, away), 336 - f * y / Math.max(0.1, away), away];
}

function line(a, b, colour) {
  const [p, q] = [seen(a), seen(b)];
  ink.strokeStyle = colour;
  ink.beginPath();
  ink.moveTo(p[0], p[1]);
  ink.lineTo(q[0], q[1]);
  ink.stroke();
}

// faces returns the faces of an object that are turned to the viewer.
function faces(o) {
  return (shapes[o.type] || []).map(face => {
    const world = face.map(p => turned(p.map((v, i) => v * o.scale[i]), o.rotation).map((v, i) => v + o.position[i]));
    const points = world.map(seen);
    const area = points.reduce((sum, p, i) => { const q = points[(i + 1) % points.length]; return sum + p[0] * q[1] - q[0] * p[1]; }, 0);
    const [a, b, c] = [world[0], world[1], world[2]], u = b.map((v, i) => v - a[i]), w = c.map((v, i) => v - a[i]);
    const normal = [u[1] * w[2] - u[2] * w[1], u[2] * w[0] - u[0] * w[2], u[0] * w[1] - u[1] * w[0]], length = Math.hypot(...normal) || 1;
    const light = Math.max(0, (0.4 * normal[0] + 0.8 * normal[1] + 0.45 * normal[2]) / length);
    return {o, points, front: area < 0, light, away: points.reduce((sum, p) => sum + p[2], 0) / points.length};
  }).filter(f => f.front || o.wireframe);
}

function draw() {
  $('name').textContent = doc.name;
  const valid = /^#[0-9a-f]{6}$/i;
  ink.globalAlpha = 1;
  ink.fillStyle = valid.test(doc.settings.backgroundColor) ? doc.settings.backgroundColor : '#ffffff';
  ink.fillRect(0, 0, view.width, view.height);
  ink.lineWidth = 1;
  if (doc.settings.showGrid) for (let i = -4; i <= 4; i++) { line([i, 0, -4], [i, 0, 4], '#bcccdc'); line([-4, 0, i], [4, 0, i], '#bcccdc'); }
  ink.lineWidth = 2;
  if (doc.settings.showAxes) [[[1, 0, 0], '#e12d39'], [[0, 1, 0], '#27ab83'], [[0, 0, 1], '#2680c2']].forEach(([to, c]) => line([0, 0, 0], to.map(v => 2 * v), c));
  for (const f of doc.objects.flatMap(faces).sort((a, b) => b.away - a.away)) {
    const hex = valid.test(f.o.color) ? f.o.color : '#9fb3c8', shade = 0.45 + 0.55 * f.light;
    const rgb = [1, 3, 5].map(i => Math.round(parseInt(hex.slice(i, i + 2), 16) * shade));
    ink.globalAlpha = f.o.opacity;
    ink.beginPath();
    f.points.forEach(([x, y], i) => i ? ink.lineTo(x, y) : ink.moveTo(x, y));
    ink.closePath();
    ink.fillStyle = ink.strokeStyle = `rgb(${rgb})`;
    ink.lineWidth = 1;
    if (!f.o.wireframe) ink.fill();
    if (f.o.id === selected) ink.strokeStyle = '#f0b429';
    ink.stroke();
  }
  ink.globalAlpha = 1;
}

view.addEventListener('pointerdown', e => { held = [e.clientX, e.clientY]; });
document.addEventListener('pointermove', e => {
  if (!held || !e.buttons) return;
  camera.turn += (e.clientX - held[0]) / 150;
  camera.tilt = Math.max(-1.4, Math.min(1.4, camera.tilt + (e.clientY - held[1]) / 150));
  held = [e.clientX, e.clientY];
  draw();
});
document.addEventListener('pointerup', () => { held = null; });
view.addEventListener('wheel', e => { camera.distance = Math.max(3, Math.min(30, camera.distance + e.deltaY / 200)); draw(); });
document.addEventListener('keydown', e => {
  if (e.target.tagName !== 'INPUT' && selected && e.key === 'Delete') remove();
});

store.open().then(opened => {
  doc = opened;
  list();
  inspect();
  draw();
});
