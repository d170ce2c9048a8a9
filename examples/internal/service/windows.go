package service

import "strconv"

// windowsService is how a service is registered with the service manager of Windows.
type windowsService struct {
	Name, DisplayName string
	Executable        string
	Arguments         []string
	// UserName is a virtual account of the service, which Windows makes.
	UserName string
	// Environment are variables of the service.
	Environment map[string]string
	// RestartAfter is the pause before a restart, for time.ParseDuration.
	RestartAfter string
}

// onWindows returns the registration of a service. root chooses LocalSystem.
func (s Service) onWindows(at Paths, about, binary string, rights Rights) windowsService {
	w := windowsService{
		Name: s.Name, DisplayName: about, Executable: binary,
		Arguments: []string{"server", "--env-file", at.Settings},
		UserName:  `NT SERVICE\` + s.Name,
		Environment: map[string]string{
			StateVariable: at.State, RuntimeVariable: at.Runtime,
			// The outputs of a service go nowhere.
			"LOG_ENABLE_FILE_LOGGING": strconv.FormatBool(true), "LOG_FILE": at.State + `\output.log`,
		},
		RestartAfter: "1s",
	}
	if rights == Root {
		w.UserName = "" // LocalSystem
	}
	return w
}
