// What a page has, element by element. It runs in its own world, so that
// nothing that the page defines is called. Elements of a page can still hide the
// properties of a form or of the document behind their names; so the properties of
// the prototypes are used.
(base, digests, maxElements, properties) => {
  const end = performance.now() + 12000; // milliseconds; what is not reached then is left out
  const kept = globalThis.berth ??= {ids: new WeakMap(), next: 0};
  kept.next = Math.max(kept.next, base);
  const strings = [], known = new Map();
  let room = 6e6; // characters
  const text = (value, limit) => {
    let s = value === null || value === undefined ? '' : String(value);
    if (s.length > limit) s = s.slice(0, limit);
    let i = known.get(s);
    if (i === undefined) {
      if ((room -= s.length) < 0) return text('', 1);
      i = strings.push(s) - 1;
      known.set(s, i);
    }
    return i;
  };
  const getter = (prototype, name) => {
    const get = Object.getOwnPropertyDescriptor(prototype, name).get;
    return e => get.call(e);
  };
  const method = (prototype, name) => {
    const f = prototype[name];
    return (e, ...args) => f.apply(e, args);
  };
  const bodyOf = getter(Document.prototype, 'body'), attributesOf = getter(Element.prototype, 'attributes');
  const tagOf = getter(Element.prototype, 'tagName'), htmlOf = getter(Element.prototype, 'outerHTML');
  const parentOf = getter(Node.prototype, 'parentElement'), textOf = getter(Node.prototype, 'textContent');
  const innerTextOf = getter(HTMLElement.prototype, 'innerText'), offsetParentOf = getter(HTMLElement.prototype, 'offsetParent');
  const rectOf = method(Element.prototype, 'getBoundingClientRect'), visible = method(Element.prototype, 'checkVisibility');
  const below = method(Element.prototype, 'getElementsByTagName'), all = method(Element.prototype, 'querySelectorAll');
  const digest = s => {
    let a = 0x811c9dc5, b = 0x9e3779b9;
    for (let i = 0; i < s.length; i++) {
      const c = s.charCodeAt(i);
      a = Math.imul(a ^ c, 0x01000193);
      b = Math.imul(b ^ c, 0x5bd1e995) ^ (b >>> 15);
    }
    return s.length + '-' + (a >>> 0).toString(16) + '-' + (b >>> 0).toString(16);
  };
  const cut = (a, b) => !a ? b : !b ? a : {
    left: Math.max(a.left, b.left), top: Math.max(a.top, b.top), right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom),
  };
  const round = v => Math.round(v * 1000) / 1000;
  const clips = new Map(); // what can be seen of the content of an element: a rectangle; nothing: all of it
  const styles = [], rows = new Map(), elements = [];
  let incomplete = false;
  const body = bodyOf(document), list = body ? all(body, '*') : [];
  for (let n = 0; n < list.length; n++) {
    if (elements.length >= maxElements || performance.now() > end) {
      incomplete = true;
      break;
    }
    const e = list[n];
    if (!kept.ids.has(e)) kept.ids.set(e, ++kept.next);
    const rect = rectOf(e), computed = getComputedStyle(e), html = e instanceof HTMLElement;
    const where = computed.position === 'fixed' ? null : computed.position === 'absolute' && html ? offsetParentOf(e) : parentOf(e);
    const clip = where ? clips.get(where) : undefined;
    const hides = [computed.overflowX, computed.overflowY].some(v => v === 'hidden' || v === 'clip');
    clips.set(e, hides ? cut(clip, rect) : clip);
    const seen = cut(clip, rect);
    const displayed = visible(e, {opacityProperty: true, visibilityProperty: true}) && seen.right > seen.left && seen.bottom > seen.top
      && rect.right + scrollX > 0 && rect.bottom + scrollY > 0;
    const out = {
      id: kept.ids.get(e), box: [rect.left + scrollX, rect.top + scrollY, rect.width, rect.height].map(round), displayed,
      descendants: below(e, '*').length, tag: text(tagOf(e), 100), text: text('', 1), html: -1, style: -1,
    };
    if (digests) out.html = text(digest(htmlOf(e)), 100);
    if (displayed && rect.width * rect.height > 0.1) {
      out.text = text((html && out.descendants < 3000 ? innerTextOf(e) : textOf(e)), 5000);
      const row = properties.map(p => text(computed.getPropertyValue(p), 1000)), key = row.join();
      if (!rows.has(key)) rows.set(key, styles.push(row) - 1);
      out.style = rows.get(key);
      const given = attributesOf(e), pairs = [];
      for (let i = 0; i < Math.min(given.length, 50); i++) {
        if (given[i].name !== 'value') pairs.push(text(given[i].name, 100), text(given[i].value, 2000));
      }
      for (const kind of [HTMLInputElement, HTMLTextAreaElement, HTMLSelectElement]) {
        if (e instanceof kind) pairs.push(text('value', 100), text(getter(kind.prototype, 'value')(e), 2000));
      }
      out.attributes = pairs;
    }
    elements.push(out);
  }
  return JSON.stringify({strings, properties, styles, elements, cut: incomplete});
}
