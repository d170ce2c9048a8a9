package stage

// Announcement is what an init tells of a step that is to come: its name, its
// image and all that shapes its container. What it runs, its environment, its
// files and its own secrets are not in it; the credentials for its image are. It
// shares lists and maps with s.
func (s *Step) Announcement() *Step {
	return &Step{
		ID: s.ID, Name: s.Name, Detach: s.Detach, Environment: map[string]string{}, User: s.User, Volumes: s.Volumes,
		Image: s.Image, Pull: s.Pull, Auth: s.Auth, NetworkAliases: s.NetworkAliases, ExtraHosts: s.ExtraHosts,
		Devices: s.Devices, Privileged: s.Privileged, CPUPeriod: s.CPUPeriod, CPUQuota: s.CPUQuota, CPUShares: s.CPUShares,
		CPUSet: s.CPUSet, MemLimit: s.MemLimit, MemSwapLimit: s.MemSwapLimit, ShmSize: s.ShmSize, Ulimits: s.Ulimits,
	}
}
