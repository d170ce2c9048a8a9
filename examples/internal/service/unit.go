package service

import (
	"fmt"
	"strings"
	"time"
)

// Rights are the rights of a service of the system.
type Rights string

// The rights of a service of the system (docs/installing.md compares them).
const (
	// Own is a separate user without the Docker engine.
	Own Rights = "own"
	// Docker is a separate user in the group of the Docker engine.
	Docker Rights = "docker"
	// Root is root, with the capabilities that the separation of steps needs.
	Root Rights = "root"
)

// unit contains the values of the systemd unit of a service.
type unit struct {
	Service
	At    Paths
	About string
	// Account is the user, for a service of the system.
	Account string
	Rights  Rights
	// Binary is the program that the unit starts.
	Binary string
	// Watchdog is the time without a message after which systemd restarts the program.
	Watchdog time.Duration
	// Ports is Program.Ports.
	Ports bool
	// Record lists what install made, for uninstall.
	Record record
}

// The most processes and threads of a service: of one that starts steps, and of another one.
const (
	stepTasks = 32768
	ownTasks  = 4096
)

// text returns the unit. Keys that a systemd older than minSystemd does not know are left out.
func (u unit) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# %s install wrote this file, and overwrites it. Change it with: systemctl edit %s", u.Program, u.Name)
	line("[Unit]")
	line("Description=%s", escape(u.About))
	if !u.User {
		line("Wants=network-online.target")
		line("After=network-online.target docker.service")
	}
	line("# systemd never gives up. The program spaces its starts if they fail.")
	line("StartLimitIntervalSec=0")
	line("")
	line("[Service]")
	line("Type=notify")
	line("NotifyAccess=main")
	settings := u.At.Settings
	if !u.User {
		// systemd reads the file as root, and gives the program a copy that no other user can read.
		settings = "${CREDENTIALS_DIRECTORY}/config.env"
		line("LoadCredential=config.env:%s", u.At.Settings)
	} else {
		settings = quote(settings)
	}
	line("ExecStart=%s server --env-file %s", quote(u.Binary), settings)
	line("Restart=always")
	line("RestartSec=1")
	line("# 78 is a wrong setting: a restart does not mend it.")
	line("RestartPreventExitStatus=78")
	line("# The program is ready when it works, for as long as that takes.")
	line("TimeoutStartSec=infinity")
	line("# While it drains, the program extends this time. DRAIN_TIMEOUT_SECS limits the drain.")
	line("TimeoutStopSec=5min")
	line("TimeoutAbortSec=30")
	line("WatchdogSec=%s", seconds(u.Watchdog))
	if !u.Ports {
		line("# Steps outlive a program that is killed or upgraded. The next process follows them.")
		line("KillMode=process")
		line("Delegate=yes")
	}
	line("RuntimeDirectory=%s", u.Name)
	line("RuntimeDirectoryMode=0700")
	line("RuntimeDirectoryPreserve=restart")
	if u.User {
		line("Environment=%s", quote(StateVariable+"="+u.At.State))
		line("WorkingDirectory=%s", escape(u.At.State))
	} else {
		line("StateDirectory=%s", u.Name)
		line("StateDirectoryMode=0755")
		line("WorkingDirectory=%s", u.At.State)
	}
	line("LimitNOFILE=1048576")
	line("LimitCORE=0")
	line("TasksMax=%d", map[bool]int{false: stepTasks, true: ownTasks}[u.Ports])
	line("OOMPolicy=continue")
	u.protection(line)
	line("")
	line("[Install]")
	if u.User {
		line("WantedBy=default.target")
	} else {
		line("WantedBy=multi-user.target")
	}
	line("")
	line("[X-Dlite]")
	for _, made := range u.Record.lines() {
		line("%s", made)
	}
	return b.String()
}

// protection writes the settings that limit the program. Steps of the host inherit all of them.
func (u unit) protection(line func(string, ...any)) {
	line("NoNewPrivileges=yes")
	if u.User {
		return // the others need rights that the service manager of a user lacks
	}
	if u.Ports {
		u.strict(line)
		return
	}
	if u.Rights == Root {
		line("CapabilityBoundingSet=CAP_SYS_ADMIN CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID " +
			"CAP_KILL CAP_SETGID CAP_SETUID CAP_SETPCAP CAP_SYS_PTRACE CAP_SYS_CHROOT CAP_NET_ADMIN CAP_NET_BIND_SERVICE CAP_SYS_RESOURCE CAP_MKNOD")
	} else {
		line("User=%s", u.Account)
		if u.Rights == Docker {
			line("SupplementaryGroups=docker")
		}
		line("CapabilityBoundingSet=")
		line("AmbientCapabilities=")
	}
	line("ProtectSystem=strict")
	line("ProtectHome=yes")
	line("PrivateTmp=yes")
	line("ProtectKernelModules=yes")
	line("ProtectClock=yes")
	line("RestrictRealtime=yes")
}

// strict writes the settings of a program that starts no other programs.
func (u unit) strict(line func(string, ...any)) {
	line("User=%s", u.Account)
	line("CapabilityBoundingSet=CAP_NET_BIND_SERVICE")
	line("AmbientCapabilities=CAP_NET_BIND_SERVICE")
	for _, on := range []string{
		"ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelModules", "ProtectKernelTunables", "ProtectKernelLogs",
		"ProtectControlGroups", "ProtectClock", "ProtectHostname", "RestrictRealtime", "RestrictSUIDSGID", "RestrictNamespaces",
		"LockPersonality", "MemoryDenyWriteExecute", "RemoveIPC",
	} {
		line("%s=yes", on)
	}
	line("ProtectSystem=strict")
	line("RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK")
	line("SystemCallArchitectures=native")
	line("SystemCallFilter=@system-service")
	line("SystemCallErrorNumber=EPERM")
	line("UMask=0077")
}

// quote quotes a word of a command or an assignment.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(s) + `"`
}

// escape escapes the specifiers of a value.
func escape(s string) string { return strings.ReplaceAll(s, "%", "%%") }

func seconds(d time.Duration) string { return fmt.Sprintf("%gs", d.Seconds()) }
