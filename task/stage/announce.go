package stage

// Announcement returns the part of a future step that an init may contain: its
// name, its image with credentials, and the settings of its container. It omits
// the command, the environment, the files and the secrets of the step. It shares
// lists and maps with s.
func (s *Step) Announcement() *Step {
	var plugin *Plugin
	if s.Plugin != nil && s.Plugin.Builtin != "" {
		plugin = &Plugin{Builtin: s.Plugin.Builtin} // decides the image in a pod
	}
	return &Step{
		Plugin: plugin,
		ID:     s.ID, Name: s.Name, Detach: s.Detach, Environment: map[string]string{}, User: s.User, Volumes: s.Volumes,
		Image: s.Image, Pull: s.Pull, Auth: s.Auth, NetworkAliases: s.NetworkAliases, ExtraHosts: s.ExtraHosts,
		Devices: s.Devices, Privileged: s.Privileged, CPUPeriod: s.CPUPeriod, CPUQuota: s.CPUQuota, CPUShares: s.CPUShares,
		CPUSet: s.CPUSet, MemLimit: s.MemLimit, MemSwapLimit: s.MemSwapLimit, ShmSize: s.ShmSize, Ulimits: s.Ulimits,
	}
}
