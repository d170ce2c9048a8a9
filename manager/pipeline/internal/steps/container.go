package steps

import (
	"math"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/task/stage"
)

// container reads the fields that steps share. Without an image the step runs on the host.
func (t *Table) container(target Target, f fields, image string) (stage.Step, error) {
	if image == "null" {
		image = ""
	}
	step := stage.Step{
		Image: image, Environment: f.texts("envVariables"), Privileged: f.boolean("privileged", false), User: f.text("runAsUser"), Pull: pull(f),
	}
	if step.Environment == nil {
		step.Environment = map[string]string{}
	}
	if image != "" {
		step.User, step.Pull = orElse(step.User, target.User), orElse(step.Pull, target.Pull)
		step.Volumes = target.Mounts
		target.nameWorkspace(step.Environment)
		t.registry(f, &step)
		limits := f.sub("resources").sub("limits")
		step.MemLimit = memoryBytes(limits, "memory")
		if quota := cpuQuota(limits, "cpu"); quota > 0 {
			step.CPUPeriod, step.CPUQuota = cpuPeriod, quota
		}
	}
	if reports := f.sub("reports"); reports.has("type") || reports.has("spec") {
		if kind := reports.text("type"); !strings.EqualFold(kind, "JUnit") {
			reports.fail("type", "is %q: use JUnit", kind)
		}
		step.TestReport = &stage.TestReport{Kind: "Junit"}
		for _, p := range reports.sub("spec").list("paths") {
			step.TestReport.Junit.Paths = append(step.TestReport.Junit.Paths, inWorkspace(p))
		}
	}
	step.Outputs = outputVariables(f)
	return step, *f.err
}

// nameWorkspace adds the variables with the path of the workspace to the variables of a step in a container.
func (t Target) nameWorkspace(env map[string]string) {
	for _, m := range t.Mounts {
		if m.Name != stage.WorkspaceVolume {
			continue
		}
		for _, name := range []string{"HARNESS_WORKSPACE", "DRONE_WORKSPACE"} {
			if env[name] == "" {
				env[name] = m.Path
			}
		}
	}
}

// registry adds the credentials of the image's registry, and its address if the image has
// none.
func (t *Table) registry(f fields, step *stage.Step) {
	c, ok := t.connector(f, RegistryConnector, AWSConnector, GCPConnector)
	if !ok || c.Kind != RegistryConnector {
		return
	}
	host := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(c.URL, "https://"), "http://"), "/")
	registry, _, _ := strings.Cut(host, "/")
	step.Auth = c.auth(registry)
	hub := host == "" || strings.Contains(registry, "docker.io")
	if first, _, found := strings.Cut(step.Image, "/"); !hub && (!found || !strings.ContainsAny(first, ".:") && first != "localhost") {
		step.Image = host + "/" + step.Image
	}
}

func pull(f fields) string {
	switch policy := f.text("imagePullPolicy"); policy {
	case "", "Always", "Never", "IfNotPresent":
		return policy
	default:
		f.fail("imagePullPolicy", "is %q: use Always, Never or IfNotPresent", policy)
		return ""
	}
}

// outputVariables returns the variables that the step hands on. Value is the name of the
// variable in the script, by default the name of the output.
func outputVariables(f fields) []stage.Output {
	var all []stage.Output
	for _, o := range f.maps("outputVariables") {
		output := stage.Output{Key: o.required("name"), Value: o.text("value"), Type: stage.OutputString}
		if output.Value == "" {
			output.Value = output.Key
		}
		if strings.EqualFold(o.text("type"), "Secret") {
			output.Type = stage.OutputSecret
		}
		all = append(all, output)
	}
	return all
}

var memoryUnits = map[string]float64{
	"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "m": 1 << 20, "g": 1 << 30,
}

// memoryBytes reads an amount of memory such as 500Mi, 2G or 1024.
func memoryBytes(f fields, name string) int64 {
	text := strings.TrimSpace(f.text(name))
	if text == "" {
		return 0
	}
	digits := strings.TrimRight(text, "kKMGimg")
	n, err := strconv.ParseFloat(digits, 64)
	unit, known := memoryUnits[text[len(digits):]]
	if err != nil || !known || n <= 0 || n*unit > math.MaxInt64/2 {
		f.fail(name, "is %q: use an amount of memory such as 500Mi or 2Gi", text)
		return 0
	}
	return int64(n * unit)
}

// cpuQuota reads processors such as 400m or 1.5, and returns microseconds in each period.
func cpuQuota(f fields, name string) int64 {
	text := strings.TrimSpace(f.text(name))
	if text == "" {
		return 0
	}
	digits, thousandths := strings.CutSuffix(text, "m")
	n, err := strconv.ParseFloat(digits, 64)
	if thousandths {
		n /= 1000
	}
	if err != nil || n <= 0 || n > 100000 {
		f.fail(name, "is %q: use a number of processors such as 400m or 1.5", text)
		return 0
	}
	return max(1000, int64(n*cpuPeriod)) // the kernel's least quota
}
