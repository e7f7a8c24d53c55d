package lookup

// Names returns how many names a Runner keeps.
func (r *Runner) Names() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.names)
}
