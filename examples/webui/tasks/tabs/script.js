const texts = ['A boat trip around the island, every day at ten.', 'Twenty for adults, and ten for children.', 'Call us at the harbour office.'];
const tabs = [...document.querySelectorAll('.tab')];
tabs.forEach((tab, i) => tab.addEventListener('click', () => {
  for (const t of tabs) t.classList.toggle('active', t === tab);
  document.querySelector('.panel').textContent = texts[i];
}));
