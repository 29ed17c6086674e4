package sandboxd

// LeaveOff leaves a protection off, so that a test can show the damage that it
// prevents.
func LeaveOff(names []string) {
	for _, n := range names {
		switch n {
		case "deafness":
			without.Deafness = true
		case "reserve":
			without.Reserve = true
		case "secrecy":
			without.Secrecy = true
		case "holding":
			without.Holding = true
		case "mixture":
			without.Mixture = true
		}
	}
}

// LookWith is how a program is looked up, with another stat.
var LookWith = lookWith
