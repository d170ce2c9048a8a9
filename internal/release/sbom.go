package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"golang.org/x/mod/module"
)

// ours is the begin of the paths of this project's modules.
const ours = "github.com/delegate-io/dlite"

// writeSBOM writes a bill of materials in the form CycloneDX: the modules that the Go command recorded in the
// executable. It depends on the executable and the release alone.
func (r *release) writeSBOM(file, executable string, p program, on platform) error {
	info, err := buildinfo.ReadFile(executable)
	if err != nil {
		return err
	}
	sum, err := sumOf(executable)
	if err != nil {
		return err
	}
	main := cyclonedx.Component{
		BOMRef: "dlite-" + p.name, Type: cyclonedx.ComponentTypeApplication, Name: "dlite-" + p.name, Version: r.version, Description: p.about,
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: sum}},
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: license}}},
		PackageURL: purl(info.Main.Path, r.version) + "#" + p.name,
		Properties: &[]cyclonedx.Property{
			{Name: "dlite:go", Value: info.GoVersion}, {Name: "dlite:platform", Value: on.String()}, {Name: "dlite:revision", Value: r.revision},
		},
	}
	parts := []cyclonedx.Component{r.modulePart("stdlib", info.GoVersion, "")}
	for _, m := range info.Deps {
		if m.Replace != nil && strings.HasPrefix(m.Path, ours) {
			parts = append(parts, r.modulePart(m.Path, r.version, ""))
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if !module.IsPseudoVersion(m.Version) && !strings.HasPrefix(m.Version, "v") {
			return fmt.Errorf("module %s has the version %q, which names no content: require a version", m.Path, m.Version)
		}
		parts = append(parts, r.modulePart(m.Path, m.Version, m.Sum))
	}
	refs := make([]string, len(parts))
	for i, part := range parts {
		refs[i] = part.BOMRef
	}
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = serial(sum)
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: &main}
	bom.Components = &parts
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return create(file, func(w io.Writer) error {
		return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	})
}

// modulePart describes a module. The sum comes from go.sum, and covers all files of the module.
func (r *release) modulePart(path, version, sum string) cyclonedx.Component {
	part := cyclonedx.Component{
		BOMRef: purl(path, version), Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl(path, version),
	}
	if sum != "" {
		part.Properties = &[]cyclonedx.Property{{Name: "dlite:go.sum", Value: sum}}
	}
	return part
}

// purl returns the package URL of a Go module.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.NewReplacer("go1", "1", "+", "%2B").Replace(version)
}

// serial makes the number of a bill from the SHA-256 of the executable: a UUID of version 8, whose bits an application
// chooses.
func serial(sum string) string {
	return fmt.Sprintf("urn:uuid:%s-%s-8%s-8%s-%s", sum[:8], sum[8:12], sum[13:16], sum[17:20], sum[20:32])
}
