'use strict';
// What the five applications have in common: a document that the browser keeps,
// and the parts that pages are made of.

// kept is a document in the storage of the browser. open returns it, or that of
// starts/NAME.json, where NAME is in the address of the page (?start=NAME). save
// keeps it, with what the export of the application says.
function kept(name, exported) {
  const save = doc => {
    localStorage.setItem(name, JSON.stringify(doc));
    localStorage.setItem(name + '.export', JSON.stringify(exported(doc)));
  };
  const open = async () => {
    const old = localStorage.getItem(name);
    if (old) return JSON.parse(old);
    const start = new URLSearchParams(location.search).get('start') || 'empty';
    const doc = await (await fetch('starts/' + encodeURIComponent(start) + '.json')).json();
    save(doc);
    return doc;
  };
  return {open, save};
}

// make returns a new element with attributes; style is an object.
function make(tag, attributes, ...children) {
  const e = tag.startsWith('svg:') ? document.createElementNS('http://www.w3.org/2000/svg', tag.slice(4)) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'style') Object.assign(e.style, value);
    else if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else if (value === true) e.setAttribute(key, '');
    else if (value !== false && value !== undefined && value !== null) e.setAttribute(key, value);
  }
  e.append(...children);
  return e;
}

// at is the style of a box.
function at(left, top, width, height) {
  const px = n => n === undefined ? '' : n + 'px';
  return {position: 'absolute', left: px(left), top: px(top), width: px(width), height: px(height)};
}

// field returns a label and an input for a value. change gets what is typed: a
// number if it is one and the old value was one, too.
let fields = 0;
function field(name, value, box, change) {
  const id = 'field-' + ++fields, [x, y, width] = box;
  if (typeof value === 'boolean') {
    return [
      make('input', {id, type: 'checkbox', checked: value, style: at(x, y + 22), onchange: e => change(e.target.checked)}),
      make('label', {for: id, style: {...at(x + 28, y + 24), color: '#1f2933'}}, name),
    ];
  }
  return [
    make('label', {for: id, style: at(x, y)}, name),
    make('input', {
      id, value, autocomplete: 'off', style: at(x, y + 20, width),
      oninput: e => {
        const text = e.target.value, number = Number(text);
        if (typeof value !== 'number') change(text);
        else if (text.trim() !== '' && Number.isFinite(number)) change(number);
      },
    }),
  ];
}
