// Package trial runs one attempt, phase by phase: it makes the sandbox, lets
// the agent work, cuts its access, has the work verified, and leaves a record
// of what happened, who caused which error, and how far the result can be
// trusted.
//
// It must not know any plugin, engine, benchmark or task format by name, must
// not start a process, and must not read configuration: everything comes in
// through [Input]. It decides nothing about other attempts; retries and
// resuming belong to the caller.
package trial
