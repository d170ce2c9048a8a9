package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// formulaOf is the form of a Homebrew formula. Homebrew knows the archives for macOS and Linux.
var formulaOf = template.Must(template.New("formula").Parse(`class {{.Class}} < Formula
  desc "{{.About}}"
  homepage "{{.Homepage}}"
  version "{{.Number}}"
  license "{{.License}}"
{{range .Systems}}
  on_{{.Name}} do
{{- range .Archives}}
    on_{{.Processor}} do
      url "{{.URL}}"
      sha256 "{{.Sum}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "{{.Program}}"{{if ne .Program .Name}} => "{{.Name}}"{{end}}
  end
{{- if .Service}}

  service do
    run [opt_bin/"{{.Name}}", "server", "--env-file", etc/"{{.Name}}/config.env"]
    keep_alive true
    working_dir var/"{{.Name}}"
    log_path var/"log/{{.Name}}.log"
    error_log_path var/"log/{{.Name}}.log"
  end

  def post_install
    (var/"{{.Name}}").mkpath
    (etc/"{{.Name}}").mkpath
  end
{{- end}}

  test do
    assert_match "{{.Version}}", shell_output("#{bin}/{{.Name}} version")
  end
end
`))

type formulaSystem struct {
	Name     string
	Archives []formulaArchive
}

type formulaArchive struct{ Processor, URL, Sum string }

// commandName returns the name under which packages install a program. Names such as manager are too general for a
// directory that all packages share.
func commandName(program string) string {
	if program == "dlite" {
		return program
	}
	return "dlite-" + program
}

// writeFormula writes a formula that downloads the archives from the address of the releases. It leaves the file out if
// the release has no archive that Homebrew knows.
func (r *release) writeFormula(dir string, p program) error {
	var systems []formulaSystem
	for _, system := range []struct{ homebrew, os string }{{"macos", "darwin"}, {"linux", "linux"}} {
		s := formulaSystem{Name: system.homebrew}
		for _, processor := range []struct{ homebrew, arch string }{{"arm", "arm64"}, {"intel", "amd64"}} {
			file := r.base(p, platform{system.os, processor.arch}) + ".tar.gz"
			sum, err := sumOf(filepath.Join(dir, file))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			s.Archives = append(s.Archives, formulaArchive{processor.homebrew, r.address + "/" + r.version + "/" + file, sum})
		}
		if len(s.Archives) > 0 {
			systems = append(systems, s)
		}
	}
	if len(systems) == 0 {
		return nil
	}
	name := commandName(p.name)
	class := ""
	for part := range strings.SplitSeq(name, "-") {
		class += strings.ToUpper(part[:1]) + part[1:]
	}
	return create(filepath.Join(dir, name+".rb"), func(w io.Writer) error {
		return formulaOf.Execute(w, map[string]any{
			"Class": class, "About": p.about, "Homepage": homepage, "License": license, "Version": r.version, "Number": strings.TrimPrefix(r.version, "v"),
			"Systems": systems, "Program": p.name, "Name": name, "Service": p.service,
		})
	})
}
