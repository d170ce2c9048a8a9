package definition

// noHarnessImages is the reason for ignoring the connector of the images of Harness.
const noHarnessImages = "no images of Harness run beside the steps"

// stageObjects are the objects of stages and of their infrastructure.
func stageObjects() []object {
	return []object{
		{name: "stage item", one: []string{"stage", "parallel"}, keys: []key{
			nested("stage", "stage", "A stage."),
			items("parallel", "parallel stage", "Stages that run at the same time."),
		}},
		{name: "parallel stage", one: []string{"stage"}, keys: []key{
			nested("stage", "stage", "A stage."),
			refused("parallel", "parallel stages cannot be nested: list all stages in one parallel block"),
		}},
		{name: "stage", inner: "spec", keys: []key{
			text("name", "The name for people."),
			needed(fixed(text("identifier", "The name in expressions and paths."))),
			fixed(text("type", "CI; other types are refused or left out.")),
			text("description", "Text for people."),
			pairs("tags", "Labels with or without a value."),
			items("variables", "variable", "Values that expressions take as stage.variables.NAME."),
			nested("when", "stage when", "When the stage runs."),
			nested("strategy", "strategy", "Repeats the stage."),
			items("failureStrategies", "failure strategy", "What happens when a step fails."),
			list("delegateSelectors", "Tags that the delegate must have."),
			timeout("The longest time of the stage."),
			{name: "dependsOn", shape: listShape, fixed: true, about: "The stages that must succeed before this one; [] starts at once."},
			nested("template", "template reference", "The template with the content of the stage."),
			spec("stage types", "The content of the stage."),
			ignored("sendGitStatus", "this service sends no status: follow the events of the run"),
			ignored("runMode", "a run selects its stages itself"),
			ignored("skipInstances", "it belongs to deployments"),
			ignored("enforce", "there are no policies"),
		}},
		{name: "stage when", keys: []key{
			needed(fixed(words("pipelineStatus", "The state of the run so far.", "Success", "Failure", "All"))),
			text("condition", "An expression that must be true as well."),
			refused("stageStatus", "a stage takes pipelineStatus; stageStatus is for steps"),
		}},
		{name: "ci stage", keys: []key{
			boolean("cloneCodebase", "Clones the codebase at the start of the stage; false by default."),
			needed(nested("execution", "execution", "The steps.")),
			nested("infrastructure", "infrastructure", "Where the stage runs."),
			nested("platform", "platform", "Where the stage runs: the operating system and architecture."),
			nested("runtime", "runtime", "Where the stage runs: Cloud or Docker."),
			nested("caching", "caching", "Restores files at the begin of the stage, and saves them at its end."),
			list("sharedPaths", "Directories that all steps share."),
			items("serviceDependencies", "service dependency", "Services beside the steps; Background steps are the newer form."),
			ignored("buildIntelligence", "there is no build cache service"),
			ignored("slsa_provenance", "there is no attestation"),
		}},
		{name: "caching", keys: []key{
			boolean("enabled", "Switches it on; true by default."),
			text("key", "The key of the cache. The default is made from the files with the dependencies."),
			list("paths", "Files and directories. The default is the directories of the tools whose files are found."),
			boolean("override", "Replaces a cache with the same key."),
			words("policy", "What happens; pull-push by default.", "pull", "push", "pull-push"),
		}},
		{name: "execution", keys: []key{
			needed(items("steps", "step item", "The steps in their order.")),
			ignored("rollbackSteps", "CI stages have no rollback"),
		}},
		{name: "platform", keys: []key{
			words("os", "The operating system.", "Linux", "MacOS", "Windows"),
			words("arch", "The architecture.", "Amd64", "Arm64"),
		}},
		{name: "runtime", keys: []key{
			needed(fixed(words("type", "The kind of machine.", "Cloud", "Docker"))),
			nested("spec", "machine", "Settings of the machine."),
		}},
		{name: "machine", keys: []key{
			text("size", "The size of the machine, which the operator may use to choose the pool."),
			ignored("imageSpec", "the pool decides the image of its machines"),
			ignored("nestedVirtualization", "the pool decides it"),
			ignoredUnless("harnessImageConnectorRef", noHarnessImages, "account.harnessImage"),
		}},
		{name: "service dependency", inner: "spec", keys: []key{
			text("name", "The name for people."),
			needed(fixed(text("identifier", "The host name of the service."))),
			fixed(words("type", "Service.", "Service")),
			text("description", "Text for people."),
			needed(nested("spec", "service", "The container.")),
		}},
		{name: "service", keys: []key{
			text("connectorRef", "The connector of the registry."),
			needed(text("image", "The image.")),
			pairs("envVariables", "The environment."),
			list("entrypoint", "The command instead of the image's entrypoint."),
			list("args", "The arguments."),
			nested("resources", "resources", "Limits."),
			words("imagePullPolicy", "When the image is pulled.", "Always", "Never", "IfNotPresent"),
			boolean("privileged", "Runs privileged."),
			text("runAsUser", "The user id."),
			pairs("portBindings", "Ports of the host to ports of the container."),
		}},
		{name: "infrastructure", one: []string{"type", "useFromStage"}, inner: "spec", keys: []key{
			fixed(words("type", "The kind of infrastructure; Cloud is read as a runtime.", "KubernetesDirect", "VM", "Docker", "Cloud")),
			spec("infrastructure types", "Settings of the infrastructure."),
			fixed(text("useFromStage", "The stage whose infrastructure is copied.")),
		}},
		{name: "kubernetes infrastructure", keys: []key{
			text("os", "The operating system."),
			anything("volumes", "Volumes of the pod: EmptyDir, HostPath, PersistentVolumeClaim, ConfigMap and Secret."),
			pairs("nodeSelector", "Labels of the node of the pod."),
			spare(text("connectorRef", "The connector of the cluster.")),
			spare(text("namespace", "The namespace of the pod, if the delegate allows it.")),
			text("serviceAccountName", "The service account of the pod, if the delegate allows it."),
			boolean("automountServiceAccountToken", "Mounts the token of the service account, if the delegate allows it."),
			pairs("labels", "Labels of the pod, if the delegate allows them."),
			pairs("annotations", "Annotations of the pod, if the delegate allows them."),
			anything("tolerations", "Taints of nodes that the pod tolerates, if the delegate allows them."),
			text("priorityClassName", "The priority of the pod, if the delegate allows it."),
			anything("containerSecurityContext", "The security context of the containers, if the delegate allows it."),
			text("runAsUser", "The user of steps without one."),
			words("imagePullPolicy", "When images are pulled, for steps that do not say it.", "Always", "Never", "IfNotPresent"),
			list("hostNames", "Names of the pod for its containers."),
			spare(key{name: "initTimeout", shape: timeShape, about: "The longest time until the pod runs."}),
			ignoredUnless("harnessImageConnectorRef", noHarnessImages, "account.harnessImage"),
			spare(anything("podSpecOverlay", "Fields of the spec of the pod as YAML, if the delegate allows them.")),
		}},
		{name: "vm infrastructure", inner: "spec", keys: []key{
			words("type", "Pool.", "Pool"),
			nested("spec", "pool", "The pool."),
		}},
		{name: "pool", keys: []key{
			text("identifier", "The name of the pool."),
			text("poolName", "The name of the pool."),
			words("os", "The operating system.", "Linux", "MacOS", "Windows"),
			ignoredUnless("harnessImageConnectorRef", noHarnessImages, "account.harnessImage"),
			spare(key{name: "initTimeout", shape: timeShape, about: "The longest time of the init: the machine, its set-up and the clone."}),
		}},
		{name: "cloud infrastructure", keys: []key{
			words("os", "The operating system.", "Linux", "MacOS", "Windows"),
			words("arch", "The architecture.", "Amd64", "Arm64"),
			text("size", "The size of the machine."),
		}},
		{name: "docker infrastructure", keys: []key{
			ignored("platform", "write platform below the spec of the stage"),
			ignoredUnless("harnessImageConnectorRef", noHarnessImages, "account.harnessImage"),
		}},
	}
}
