package experiment

// readSecrets reports the secrets that cannot be read, of every cell and of the
// verifiers that its tasks use. One cell comes after the other.
func (l *Loaded) readSecrets() {
	seen := map[string]bool{}
	for _, c := range l.Experiment.Cells {
		var datasets []string
		for i := range c.Datasets {
			datasets = append(datasets, c.Datasets[i].Label)
		}
		for _, d := range l.Experiment.CheckSecrets(c, l.verifiers(datasets...)...) {
			if s := d.String(); !seen[s] {
				seen[s] = true
				l.Secrets = append(l.Secrets, d)
			}
		}
	}
}
