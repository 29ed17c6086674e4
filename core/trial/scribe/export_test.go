package scribe

// AtMost lowers the bound on steps.
func (p *Pen) AtMost(steps int64) { p.most = steps }
