package eval

// LimitGlob changes how many names Glob looks at.
func (r *Reader) LimitGlob(names int) { r.names = names }
