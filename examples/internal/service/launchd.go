package service

import (
	"encoding/xml"
	"strings"
)

// plist contains the values of the property list of a launchd service.
type plist struct {
	Service
	At     Paths
	Binary string
	// Account is the user of a service of the system.
	Account string
}

// exitTimeOut is how long launchd waits for a program that drains, in seconds. launchd has no message to extend it.
const exitTimeOut = "7200"

// text returns the property list.
func (p plist) text() string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
`)
	key := func(name, value string) { b.WriteString("\t<key>" + name + "</key>\n\t" + value + "\n") }
	key("Label", xmlString(p.Name))
	key("ProgramArguments", "<array>\n\t\t"+xmlString(p.Binary)+"\n\t\t"+xmlString("server")+"\n\t\t"+
		xmlString("--env-file")+"\n\t\t"+xmlString(p.At.Settings)+"\n\t</array>")
	key("EnvironmentVariables", "<dict>\n\t\t<key>"+StateVariable+"</key>\n\t\t"+xmlString(p.At.State)+
		"\n\t\t<key>"+RuntimeVariable+"</key>\n\t\t"+xmlString(p.At.Runtime)+
		"\n\t\t<key>PATH</key>\n\t\t"+xmlString("/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin")+"\n\t</dict>")
	if p.Account != "" {
		key("UserName", xmlString(p.Account))
	}
	key("WorkingDirectory", xmlString(p.At.State))
	key("RunAtLoad", "<true/>")
	key("KeepAlive", "<true/>")
	key("ThrottleInterval", "<integer>1</integer>")
	key("ExitTimeOut", "<integer>"+exitTimeOut+"</integer>")
	key("AbandonProcessGroup", "<true/>")
	key("Umask", "<integer>63</integer>") // 077
	key("StandardOutPath", xmlString(p.At.log()))
	key("StandardErrorPath", xmlString(p.At.log()))
	b.WriteString("</dict>\n</plist>\n")
	return b.String()
}

// log returns the file of both outputs, for launchd and Windows.
func (p Paths) log() string { return p.State + "/output.log" }

func xmlString(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder does not fail
	return "<string>" + b.String() + "</string>"
}
