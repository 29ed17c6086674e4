// Package slurm runs experiments on a real Slurm, which scripts/slurm-for-tests
// starts on this machine: a controller and three nodes in namespaces of their own,
// with one shared folder. Nothing pretends to be a scheduler.
//
// It takes minutes: make test-slurm.
package slurm
