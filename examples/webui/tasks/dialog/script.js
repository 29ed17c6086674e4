document.getElementById('open').addEventListener('click', () => {
  document.getElementById('shade').classList.add('shown');
  document.querySelectorAll('#shade [data-evalby]').forEach(e => e.classList.add('seen'));
});
document.getElementById('close').addEventListener('click', () => {
  document.getElementById('shade').classList.remove('shown');
  document.querySelector('.intro').textContent = 'See you soon at the museum.';
});
