package views

// Tight says whether memory is short now.
func (f Folders) Tight() bool { return f.tight() }
