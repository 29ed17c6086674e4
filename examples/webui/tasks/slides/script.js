let n = 0;
document.getElementById('next').addEventListener('click', () => {
  n = (n + 1) % 3;
  document.querySelector('.strip').style.transform = 'translateX(' + -800 * n + 'px)';
  document.querySelectorAll('.slide').forEach((slide, i) => slide.toggleAttribute('data-shown', i === n));
});
