const basket = document.getElementById('basket'), apple = document.getElementById('apple');
apple.addEventListener('dragstart', event => event.dataTransfer.setData('text', 'apple'));
basket.addEventListener('dragover', event => event.preventDefault());
basket.addEventListener('drop', event => {
  event.preventDefault();
  basket.append(apple);
  basket.classList.add('full');
  document.getElementById('says').textContent = 'There is an apple in it.';
});
