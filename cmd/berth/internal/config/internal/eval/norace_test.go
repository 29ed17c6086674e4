//go:build !race

package eval_test

// mostMemory is what a hostile expression may take, in KiB: 1 GiB.
const mostMemory = 1 << 20
