// Package compose runs tasks of several containers with the built program, on
// every engine that scripts/engines-for-tests has started. It holds tests only.
package compose
