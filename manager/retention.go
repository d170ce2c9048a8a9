package manager

// The sizes of the data that the manager and its queue remember after the end of a stage, of each
// of its parts, and of a single task, in bytes of memory without their texts and answers.
// TestEndedStagesCountTheirMemory measures them.
const (
	keptStage = 4 << 10
	keptPart  = 1536
	keptTask  = 1 << 10
)

// keptSize returns the size of a stage after its end, without its answers:
// see [Config.MaxFinishedBytes].
func (n *run) keptSize() int {
	size := keptStage + len(n.ID) + len(n.Name) + len(n.Pipeline)
	for _, s := range n.Selectors {
		size += len(s)
	}
	for name, value := range n.Labels {
		size += 2 * (len(name) + len(value)) // each label is also a group
	}
	if n.log != nil {
		size += len(n.log.URL) + len(n.log.Token)
	}
	for _, p := range n.parts {
		size += p.keptSize()
	}
	return size
}

// keptSize returns the size of a part after the end of its stage.
func (p *step) keptSize() int {
	return keptPart + len(p.ID) + len(p.Name) + len(p.LogKey) + len(p.digest)
}
