document.querySelector('form').addEventListener('submit', event => {
  event.preventDefault();
  const note = document.querySelector('.note'), mail = document.querySelector('[name=mail]').value;
  const good = mail.includes('@');
  note.textContent = good ? 'Welcome, ' + document.querySelector('[name=who]').value + '!' : 'This is no address.';
  note.className = 'note ' + (good ? 'good' : 'bad');
});
