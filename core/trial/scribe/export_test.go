package scribe

// LogAtMost lowers the bound on the log, in bytes.
func (s *Scribe) LogAtMost(bytes int64) { s.logMost = bytes }

// AtMost lowers the bound on steps.
func (p *Pen) AtMost(steps int64) { p.most = steps }
