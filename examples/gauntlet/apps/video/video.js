'use strict';
// A video editor with three tracks. Its export is the list of what was done, which
// ends with the timeline as it is.

const scale = 0.04; // pixels per millisecond
const left = 100; // of the timeline, in pixels
const colours = {VIDEO: '#2680c2', AUDIO: '#27ab83', TEXT: '#9446ed'};
const maxOperations = 200;

const store = kept('video', exported);
let doc, chosen = 0, selected = null, dragged = null;

const $ = id => document.getElementById(id);

const timeline = d => ({name: d.name, timeline: d.tracks.map((t, i) => ({trackIndex: i, elements: t.elements, effectSubTrack: {items: t.effects}}))});

function exported(d) {
  return {operations: [...d.operations, {type: 'EXPORT_COMPLETE', data: timeline(d), timestamp: Date.now()}]};
}

function changed(type, data) {
  doc.operations.push({type, data, timestamp: Date.now()});
  doc.operations = doc.operations.slice(-maxOperations);
  for (const track of doc.tracks) for (const f of track.effects) Object.assign(f, span(find(f.elementId).e));
  store.save(doc);
  draw();
}

const end = e => e.startTimeMs + e.durationMs;

function find(id) {
  for (const track of doc.tracks) for (const e of track.elements) if (e.elementId === id) return {e, track};
  return {};
}

function put(track, e) {
  e.elementId = 'e' + ++doc.next;
  e.startTimeMs = doc.tracks[track].elements.reduce((last, o) => Math.max(last, end(o)), 0);
  doc.tracks[track].elements.push(e);
  selected = e.elementId;
  changed('ADD_ELEMENT', {trackIndex: track, elementId: e.elementId});
  inspect();
}

function addMedia(track) {
  const m = doc.media[chosen];
  put(track, {mediaName: m.name, mediaType: m.type, durationMs: m.durationMs, trimFromStartMs: 0, trimFromEndMs: 0});
}

function addText(track) {
  put(track, {
    mediaName: 'Text', mediaType: 'TEXT', durationMs: 3000, trimFromStartMs: 0, trimFromEndMs: 0, text: 'Title',
    fontColor: '#ffffff', backgroundColor: '#000000', fontSize: 32,
  });
}

function remove(id) {
  const {e, track} = find(id);
  if (!e) return;
  track.elements = track.elements.filter(o => o !== e);
  track.effects = track.effects.filter(f => f.elementId !== id);
  selected = null;
  changed('REMOVE_ELEMENT', {elementId: id});
  inspect();
}

// span is when an element fades out: in its last 3 seconds.
const span = e => ({startTimeMs: Math.max(e.startTimeMs, end(e) - 3000), endTimeMs: end(e)});

function fade(id) {
  const {e, track} = find(id);
  track.effects = track.effects.filter(f => f.elementId !== id);
  track.effects.push({type: 'fade-out', elementId: id, ...span(e), params: {curve: 'linear', from: 1, to: 0}});
  changed('ADD_EFFECT', {elementId: id, type: 'fade-out'});
}

function setField(e, key, value) {
  e[key] = typeof value === 'number' ? Math.max(0, Math.round(value)) : value;
  changed('UPDATE_ELEMENT', {elementId: e.elementId, [key]: e[key]});
}

function media() {
  const parts = [make('div', {class: 'title', style: {left: '20px', top: '20px'}}, 'Media')];
  doc.media.forEach((m, i) => parts.push(make('button', {
    class: i === chosen ? 'on' : '', style: at(20, 46 + 48 * i, 238, 40), onclick: () => { chosen = i; media(); },
  }, `${m.name} · ${m.durationMs / 1000} s`)));
  [1, 2, 3].forEach((n, i) => parts.push(make('button', {
    style: {...at(20 + 81 * i, 320, 76, 36), textAlign: 'center', padding: 0}, 'aria-label': `Add to track ${n}`, onclick: () => addMedia(i),
  }, `+ Track ${n}`)));
  parts.push(make('button', {style: at(20, 366, 238, 36), onclick: () => addText(1)}, '+ Text on track 2'));
  $('media').replaceChildren(...parts);
}

function inspect() {
  const parts = [make('div', {class: 'title', style: {left: '20px', top: '20px'}}, 'Properties')];
  const {e} = find(selected);
  if (!e) {
    parts.push(make('div', {class: 'hint', style: at(20, 46, 278)}, 'Click an element of the timeline to edit it. Drag it to move it.'));
    $('inspector').replaceChildren(...parts);
    return;
  }
  parts.push(make('b', {style: at(20, 42)}, e.mediaName));
  const rows = [['startTimeMs', 'durationMs'], ['trimFromStartMs', 'trimFromEndMs'], ...(e.mediaType === 'TEXT' ? [['text'], ['fontColor', 'backgroundColor']] : [])];
  rows.forEach((row, r) => row.forEach((key, i) => {
    parts.push(...field(key, e[key], [20 + 144 * i, 72 + 62 * r, row.length > 1 ? 134 : 278], v => setField(e, key, v)));
  }));
  if (e.mediaType === 'VIDEO') parts.push(make('button', {style: at(20, 322, 278, 36), onclick: () => fade(e.elementId)}, 'Add fade-out (3 s)'));
  parts.push(make('button', {class: 'danger', style: at(20, 368, 278, 36), onclick: () => remove(e.elementId)}, 'Delete element'));
  $('inspector').replaceChildren(...parts);
}

function draw() {
  $('name').textContent = doc.name;
  const parts = [];
  for (let s = 0; s < 29; s += 2) parts.push(make('span', {class: 'tick', style: {left: left + s * 1000 * scale + 'px'}}, `${s} s`));
  doc.tracks.forEach((track, i) => {
    const row = make('div', {class: 'row', style: {top: 26 + 60 * i + 'px'}}, make('span', {}, `Track ${i + 1}`));
    for (const e of track.elements) {
      const box = make('div', {
        class: 'element' + (selected === e.elementId ? ' on' : ''), role: 'button',
        'aria-label': `${e.mediaType === 'TEXT' ? 'Text ' + e.text : e.mediaName} on track ${i + 1}, ${e.startTimeMs} to ${end(e)} ms`,
        style: {left: left + e.startTimeMs * scale + 'px', width: Math.max(12, e.durationMs * scale) + 'px', background: colours[e.mediaType]},
      }, e.mediaType === 'TEXT' ? `T ${e.text}` : e.mediaName);
      box.addEventListener('pointerdown', ev => {
        dragged = {e, at: ev.clientX, start: e.startTimeMs, moved: false};
        selected = e.elementId;
      });
      row.append(box);
    }
    for (const f of track.effects) {
      row.append(make('div', {class: 'effect', style: {left: left + f.startTimeMs * scale + 'px', width: (f.endTimeMs - f.startTimeMs) * scale + 'px'}}));
    }
    parts.push(row);
  });
  parts.push(make('button', {style: {...at(1080, 210, 180, 36), textAlign: 'center'}, onclick: () => changed('EXPORT_COMPLETE', structuredClone(timeline(doc)))}, 'Export'));
  $('timeline').replaceChildren(...parts);
  preview();
}

// preview shows the first picture, and the texts over it.
function preview() {
  const ink = $('preview').getContext('2d'), {e} = find(selected);
  ink.fillStyle = '#102a43';
  ink.fillRect(0, 0, 680, 420);
  const hue = e ? [...e.mediaName].reduce((h, c) => (h * 31 + c.charCodeAt(0)) % 360, 7) : 210;
  const sky = ink.createLinearGradient(0, 60, 0, 360);
  sky.addColorStop(0, `hsl(${hue} 60% 55%)`);
  sky.addColorStop(1, `hsl(${(hue + 40) % 360} 50% 25%)`);
  ink.fillStyle = sky;
  ink.fillRect(60, 45, 560, 315);
  ink.textAlign = 'center';
  ink.font = 'bold 28px sans-serif';
  if (e && e.mediaType === 'TEXT') {
    ink.fillStyle = e.backgroundColor;
    ink.fillRect(180, 280, 320, 52);
    ink.fillStyle = e.fontColor;
    ink.fillText(e.text, 340, 316, 300);
  } else {
    ink.fillStyle = '#fff';
    ink.fillText(e ? e.mediaName : 'Nothing is selected', 340, 210, 500);
  }
}

document.addEventListener('pointermove', ev => {
  if (!dragged || !ev.buttons) return;
  const to = Math.max(0, Math.round((dragged.start + (ev.clientX - dragged.at) / scale) / 100) * 100);
  dragged.moved ||= to !== dragged.start;
  dragged.e.startTimeMs = to;
  draw();
});
document.addEventListener('pointerup', () => {
  if (!dragged) return;
  const {e, moved} = dragged;
  dragged = null;
  if (moved) changed('MOVE_ELEMENT', {elementId: e.elementId, startTimeMs: e.startTimeMs});
  else draw();
  inspect();
});
document.addEventListener('keydown', e => {
  if (e.target.tagName !== 'INPUT' && selected && (e.key === 'Delete' || e.key === 'Backspace')) remove(selected);
});

store.open().then(opened => {
  doc = opened;
  media();
  draw();
  inspect();
});
