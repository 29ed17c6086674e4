// Package engines holds the tests of whole runs on real container engines: the
// same rewards on each of them, and what is left when something of ours or of
// the engine is killed in the middle of a trial.
//
// It uses the engines that scripts/engines-for-tests starts, and skips what is
// not there. Nothing imports this package. What an engine's plugin can show
// alone is tested beside it.
package engines
