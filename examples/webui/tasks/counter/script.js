const count = document.getElementById('count');
let n = 0;
const show = () => { count.textContent = n; count.classList.toggle('negative', n < 0); };
document.getElementById('more').addEventListener('click', () => { n++; show(); });
document.getElementById('less').addEventListener('click', () => { n--; show(); });
