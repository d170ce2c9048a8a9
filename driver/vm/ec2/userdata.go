package ec2

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strings"

	"github.com/delegate-io/dlite/driver/agent"
)

// maxUserData is EC2's limit in bytes, before base64.
const maxUserData = 16 << 10

// bootFile is the path of the boot for the machine's agent. It is in memory.
const bootFile = "/run/dlite/boot.json"

// userData returns the user data of a machine and the port of its agent.
func (p *ec2Provider) userData(raw []byte) (data, port string, err error) {
	var boot agent.Boot
	if err := json.Unmarshal(raw, &boot); err != nil {
		return "", "", fmt.Errorf("its boot is not JSON: %w", err)
	}
	if _, port, err = net.SplitHostPort(boot.Address()); err != nil {
		return "", "", fmt.Errorf("its boot: %w", err)
	}
	// The machine's clock is correct, and this time would be minutes old when the machine reads
	// it. The machine does not share its random state either.
	boot.Time, boot.Seed = 0, nil
	if raw, err = json.Marshal(boot); err != nil {
		return "", "", err
	}
	render := p.cloudInit
	if p.cfg.UserData != nil {
		render = p.cfg.UserData
	}
	b, err := render(raw)
	if err != nil {
		return "", "", fmt.Errorf("create its user data: %w", err)
	}
	if len(b) > maxUserData {
		return "", "", fmt.Errorf("its user data has %d bytes, and the limit of EC2 is %d", len(b), maxUserData)
	}
	return base64.StdEncoding.EncodeToString(b), port, nil
}

// cloudInit returns a cloud-config. It is YAML, which includes JSON.
func (p *ec2Provider) cloudInit(boot []byte) ([]byte, error) {
	type file struct {
		Path        string `json:"path"`
		Permissions string `json:"permissions"`
		Encoding    string `json:"encoding"`
		Content     []byte `json:"content"`
	}
	b, err := json.Marshal(struct {
		Files []file     `json:"write_files"`
		Run   [][]string `json:"runcmd"`
	}{
		Files: []file{{Path: bootFile, Permissions: "0600", Encoding: "b64", Content: boot}},
		Run:   [][]string{{"/bin/sh", "-c", p.script()}},
	})
	return append([]byte("#cloud-config\n"), b...), err
}

// script returns the script that starts the agent. It first removes cloud-init's copies of the
// user data. It protects the agent from the out-of-memory killer, because a step may use up the
// memory.
func (p *ec2Provider) script() string {
	a := p.cfg.Agent
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	line("set -eu")
	line("chmod 700 /run/dlite")
	line("rm -f /var/lib/cloud/instance/user-data.txt* /var/lib/cloud/instance/cloud-config.txt /var/lib/cloud/instance/obj.pkl")
	if p.cfg.MaxLife > 0 {
		line("shutdown -P +%d", int(math.Ceil(p.cfg.MaxLife.Minutes())))
	}
	line("agent='%s'", a.Path)
	if a.URL != "" {
		line(`part="$agent.part"`)
		line(`mkdir -p "$(dirname "$agent")"`)
		line(`{ curl -fsSL --retry 5 -o "$part" '%s' || wget -q -O "$part" '%s'; } </dev/null`, a.URL, a.URL)
		line(`echo '%s  '"$part" | sha256sum -c -`, strings.ToLower(a.SHA256))
		line(`chmod 755 "$part"`)
		line(`mv "$part" "$agent"`)
	}
	line("if [ -d /run/systemd/system ]; then")
	line(`  exec systemd-run --unit=dlite-agent -p Delegate=yes -p OOMPolicy=continue -p KillMode=mixed "$agent" serve --boot=%s`, bootFile)
	line("fi")
	line(`nohup "$agent" serve --boot=%s </dev/null >/run/dlite/agent.log 2>&1 &`, bootFile)
	return b.String()
}
