'use strict';
// A table and a map of flights. Nothing can be changed here: a task asks for an answer.

let selected = null, order = 'flight', search = '';
const $ = id => document.getElementById(id);
const columns = {flight: 'Flight', from: 'From', to: 'To', aircraft: 'Aircraft', altitude: 'Altitude', speed: 'Speed', arrival: 'Arrival'};
const shown = {altitude: v => v.toLocaleString('en-US') + ' ft', speed: v => v + ' kt', arrival: v => v + ' UTC'};
const text = (f, key) => (shown[key] || String)(f[key]);

function rows() {
  const found = flights.filter(f => Object.values(f).join(' ').toLowerCase().includes(search.toLowerCase()));
  return found.sort((a, b) => (typeof a[order] === 'number' ? a[order] - b[order] : String(a[order]).localeCompare(String(b[order]))) || a.flight.localeCompare(b.flight));
}

function table() {
  const body = rows().map(f => make('tr', {class: f === selected ? 'on' : '', onclick: () => select(f)}, ...Object.keys(columns).map(c => make('td', {}, text(f, c)))));
  $('rows').replaceChildren(make('thead', {}, make('tr', {}, ...Object.entries(columns).map(([key, name]) =>
    make('th', {onclick: () => { order = key; table(); }}, name + (order === key ? ' ▾' : ''))))), make('tbody', {}, ...body));
}

function select(f) {
  selected = f;
  table();
  map();
  const parts = [make('div', {class: 'title', style: {left: '20px', top: '18px'}}, f ? f.flight : 'No flight is selected')];
  if (f) {
    parts.push(make('dl', {}, ...Object.entries({From: f.from, To: f.to, Aircraft: f.aircraft, Altitude: text(f, 'altitude'), Speed: text(f, 'speed'), Arrival: text(f, 'arrival'), Over: f.over})
      .flatMap(([key, value]) => [make('dt', {}, key), make('dd', {}, value)])));
  }
  $('details').replaceChildren(...parts);
}

function map() {
  const ink = $('map').getContext('2d');
  ink.fillStyle = '#b3d4e8';
  ink.fillRect(0, 0, 640, 472);
  for (const c of countries) {
    ink.beginPath();
    c.outline.forEach(([x, y], i) => i ? ink.lineTo(x, y) : ink.moveTo(x, y));
    ink.closePath();
    ink.fillStyle = c.colour;
    ink.fill();
    ink.strokeStyle = '#829ab1';
    ink.stroke();
    ink.fillStyle = '#486581';
    ink.font = 'italic 14px sans-serif';
    ink.textAlign = 'center';
    ink.fillText(c.name, c.label[0], c.label[1]);
  }
  ink.fillStyle = '#627d98';
  ink.fillText(sea.name, sea.label[0], sea.label[1]);
  for (const f of flights) {
    ink.save();
    ink.translate(f.x, f.y);
    ink.rotate(f.heading * Math.PI / 180);
    ink.beginPath();
    [[0, -9], [2, -3], [9, 3], [2, 2], [1, 7], [4, 10], [-4, 10], [-1, 7], [-2, 2], [-9, 3], [-2, -3]].forEach(([x, y], i) => i ? ink.lineTo(x, y) : ink.moveTo(x, y));
    ink.closePath();
    ink.fillStyle = f === selected ? '#e12d39' : '#f0b429';
    ink.fill();
    ink.strokeStyle = '#243b53';
    ink.stroke();
    ink.restore();
    if (f === selected) {
      ink.fillStyle = '#ba2525';
      ink.font = 'bold 13px sans-serif';
      ink.fillText(f.flight, f.x, f.y - 14);
    }
  }
}

$('map').addEventListener('click', e => {
  const box = e.target.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
  const near = flights.map(f => [Math.hypot(f.x - x, f.y - y), f]).sort((a, b) => a[0] - b[0])[0];
  select(near[0] < 20 ? near[1] : null);
});
$('list').append(
  make('input', {style: at(16, 10, 300), placeholder: 'Search', 'aria-label': 'Search', oninput: e => { search = e.target.value; table(); }}),
  make('table', {id: 'rows'}),
);
select(null);
