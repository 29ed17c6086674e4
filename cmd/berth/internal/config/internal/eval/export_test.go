package eval

import "time"

// LimitTime changes how long evaluations may take.
func LimitTime(d time.Duration) { maxTime = d }

// LimitGlob changes how many names Glob looks at.
func (r *Reader) LimitGlob(names int) { r.names = names }
