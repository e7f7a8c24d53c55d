package lookup

// Names returns the number of names that a Runner keeps.
func (r *Runner) Names() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.names)
}
