//go:build race

package eval_test

// mostMemory is what a hostile expression may take, in KiB: 2 GiB, since the race
// detector doubles what a step of arithmetic takes.
const mostMemory = 2 << 20
