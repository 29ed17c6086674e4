const button = document.querySelector('.button');
button.addEventListener('mouseenter', () => button.classList.add('warm'));
button.addEventListener('mouseleave', () => button.classList.remove('warm'));
