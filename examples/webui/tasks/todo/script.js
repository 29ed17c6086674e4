const list = document.querySelector('ul'), field = document.getElementById('new');
field.addEventListener('keydown', event => {
  if (event.key !== 'Enter' || !field.value) return;
  const item = document.createElement('li');
  item.textContent = field.value;
  item.dataset.filterBy = 'text';
  item.dataset.evalby = 'text|background-color|border-left';
  list.append(item);
  field.value = '';
});
list.addEventListener('click', event => { if (event.target.tagName === 'LI') event.target.classList.toggle('done'); });
