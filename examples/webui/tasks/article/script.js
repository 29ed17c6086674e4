addEventListener('scroll', () => document.querySelector('header').classList.toggle('small', scrollY > 100));
