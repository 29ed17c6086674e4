package recorder

// LogAtMost lowers the bound on the log, in bytes.
func (s *Recorder) LogAtMost(bytes int64) { s.logMost = bytes }

// AtMost lowers the bound on steps.
func (p *SessionRecorder) AtMost(steps int64) { p.most = steps }
