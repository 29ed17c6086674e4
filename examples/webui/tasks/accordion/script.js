for (const head of document.querySelectorAll('.head')) {
  head.addEventListener('click', () => {
    const open = head.parentElement.classList.toggle('open');
    head.setAttribute('aria-expanded', open);
    head.nextElementSibling.classList.toggle('shown', open);
  });
}
