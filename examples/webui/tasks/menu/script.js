const more = document.querySelector('.more');
for (const [event, open] of [['mouseenter', true], ['mouseleave', false]]) {
  more.addEventListener(event, () => more.querySelectorAll('a').forEach(a => a.setAttribute('aria-expanded', open)));
}
