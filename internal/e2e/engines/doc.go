// Package engines holds the tests of whole runs on real container engines: the
// rewards are the same on each of them, and nothing is left when a part of ours
// or of the engine is killed during a trial.
//
// It uses the engines that scripts/engines-for-tests starts, and skips missing
// ones. Nothing imports this package. Behaviour that an engine's plugin can
// show alone is tested there.
package engines
