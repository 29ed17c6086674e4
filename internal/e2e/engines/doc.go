// Package engines holds the tests of whole runs on real container engines. They
// check that the rewards are the same on each engine, and that nothing is left
// when a process of Berth or of the engine is killed during a trial.
//
// The tests use the engines that scripts/engines-for-tests starts, and skip
// engines that are missing. Nothing imports this package. What can be tested
// with the plugin of an engine alone is tested in the plugin.
package engines
