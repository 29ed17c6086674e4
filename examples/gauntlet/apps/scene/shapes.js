'use strict';
// The shapes of a scene as faces: lists of points, seen from outside
// counterclockwise. Each fits into a cube of size 1 around 0.

const shapes = (() => {
  const ring = (n, r, y) => Array.from({length: n}, (_, i) => [r * Math.cos(2 * Math.PI * i / n), y, -r * Math.sin(2 * Math.PI * i / n)]);
  // walls joins rings from below to above.
  const walls = rings => rings.slice(1).flatMap((upper, k) => upper.map((_, i) => {
    const j = (i + 1) % upper.length, lower = rings[k];
    return [lower[i], lower[j], upper[j], upper[i]];
  }));
  const n = 16, h = 0.5;
  const corners = s => [[-h, s * h, h], [h, s * h, h], [h, s * h, -h], [-h, s * h, -h]];
  const parallels = Array.from({length: 9}, (_, i) => ring(n, h * Math.sin(Math.PI * i / 8) + 1e-6, -h * Math.cos(Math.PI * i / 8)));
  return {
    cube: [...walls([corners(-1), corners(1)]), corners(1), corners(-1).reverse()],
    sphere: walls(parallels),
    cylinder: [...walls([ring(n, h, -h), ring(n, h, h)]), ring(n, h, h), ring(n, h, -h).reverse()],
    cone: [...walls([ring(n, h, -h), ring(n, 1e-6, h)]), ring(n, h, -h).reverse()],
    plane: [[[-h, 0, h], [h, 0, h], [h, 0, -h], [-h, 0, -h]], [[-h, 0, -h], [h, 0, -h], [h, 0, h], [-h, 0, h]]],
  };
})();

// turned rotates a point about X, then Y, then Z.
function turned([x, y, z], [a, b, c]) {
  [y, z] = [y * Math.cos(a) - z * Math.sin(a), y * Math.sin(a) + z * Math.cos(a)];
  [x, z] = [x * Math.cos(b) + z * Math.sin(b), -x * Math.sin(b) + z * Math.cos(b)];
  [x, y] = [x * Math.cos(c) - y * Math.sin(c), x * Math.sin(c) + y * Math.cos(c)];
  return [x, y, z];
}
