{{/* Go's chart takes booleans as strings too; "false" is no empty string. */}}
{{- define "ccm.isTrue" -}}
{{- if eq (toString .) "true" -}}true{{- end -}}
{{- end -}}

{{/*
With `helm upgrade --reuse-values`, a release keeps the defaults of its former chart, and templates would read defaults that do not exist.
Every template begins with this check. Its key is the newest one that has a default.
*/}}
{{- define "ccm.checkDefaults" -}}
{{- if not (hasKey (.Values.cloudNodeManager | default dict) "windows") -}}
{{- fail "\n\nThis release is refused:\n- the defaults of this chart are missing: --reuse-values keeps those of the chart before. Use --reset-then-reuse-values instead, which keeps what you have set and adds the new defaults\n" -}}
{{- end -}}
{{- end -}}

{{/* Labels of every object, without what selects pods. */}}
{{- define "ccm.labels" -}}
{{- with omit .Values.commonLabels "app.kubernetes.io/managed-by" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/name" "helm.sh/chart" "component" "k8s-app" "kubernetes.io/cluster-service" -}}
{{ toYaml . }}
{{ end -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end -}}

{{/*
The image of one program. In: root, own (the values of that program). A name that begins with azure- is that of the Go program and
stands for `image`, as does one that is not set.
*/}}
{{- define "ccm.image" -}}
{{- $own := .own.imageName | default "" -}}
{{- $image := .root.Values.image -}}
{{- if or (not $own) (hasPrefix "azure-" $own) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (printf "v%s" .root.Chart.AppVersion)) -}}
{{- end -}}
{{- else -}}
{{- printf "%s/%s:%s" .own.imageRepository $own (.own.imageTag | default .root.Values.image.tag | default (printf "v%s" .root.Chart.AppVersion)) -}}
{{- end -}}
{{- end -}}

{{- define "ccm.pullPolicy" -}}
{{- .own.imagePullPolicy | default .root.Values.image.pullPolicy -}}
{{- end -}}

{{/* Rules of the role `name` in a file with several objects, so that rights stand in one place. In: root, file, kind, name. */}}
{{- define "ccm.rules" -}}
{{- $found := dict -}}
{{- range splitList "\n---\n" (.root.Files.Get .file) -}}
{{- $object := fromYaml . -}}
{{- if and (eq $object.kind $.kind) (eq $object.metadata.name $.name) -}}
{{- $_ := set $found "rules" $object.rules -}}
{{- end -}}
{{- end -}}
{{- toYaml (required (printf "%s has no %s %s" .file .kind .name) $found.rules) -}}
{{- end -}}

{{/* Who the program is to the API server. */}}
{{- define "ccm.subjects" -}}
{{- $subjects := list (dict "kind" "ServiceAccount" "name" "cloud-controller-manager" "namespace" "kube-system") -}}
{{- if .Values.cloudControllerManager.kubeconfig -}}
{{- /* Whoever brings a kubeconfig may be this user, as in Go's chart. */ -}}
{{- $subjects = append $subjects (dict "apiGroup" "rbac.authorization.k8s.io" "kind" "User" "name" "cloud-controller-manager") -}}
{{- end -}}
{{- toYaml $subjects -}}
{{- end -}}

{{/* The Lease that the leader holds. */}}
{{- define "ccm.leaseName" -}}
{{- .Values.cloudControllerManager.leaderElectResourceName | default "cloud-controller-manager" -}}
{{- end -}}

{{/* A value as a flag takes it: a large whole number without an exponent. */}}
{{- define "ccm.text" -}}
{{- if kindIs "float64" . -}}
{{- eq (floor .) . | ternary (printf "%.0f" .) (toString .) -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* `- "--flag=value"` for each key that is set. In: values, flags (a list of flag and key). */}}
{{- define "ccm.optionalArgs" -}}
{{- $values := .values -}}
{{- range .flags -}}
{{- if hasKey $values (last .) }}
- {{ printf "--%s=%s" (first .) (include "ccm.text" (get $values (last .))) | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Requests and limits; an empty value is none. */}}
{{- define "ccm.resources" -}}
{{- $requests := dict -}}
{{- $limits := dict -}}
{{- if .requestsCPU -}}{{- $_ := set $requests "cpu" .requestsCPU -}}{{- end -}}
{{- if .requestsMem -}}{{- $_ := set $requests "memory" .requestsMem -}}{{- end -}}
{{- if .limitsCPU -}}{{- $_ := set $limits "cpu" .limitsCPU -}}{{- end -}}
{{- if .limitsMem -}}{{- $_ := set $limits "memory" .limitsMem -}}{{- end -}}
{{- toYaml (dict "requests" $requests "limits" $limits) -}}
{{- end -}}

{{/* An update strategy; a map of defaults that another type does not know is left out. */}}
{{- define "ccm.strategy" -}}
{{- if eq .type "RollingUpdate" -}}
{{- toYaml . -}}
{{- else -}}
{{- toYaml (omit . "rollingUpdate") -}}
{{- end -}}
{{- end -}}

{{/* Whether azure.json is mounted from a Secret. */}}
{{- define "ccm.mountsConfig" -}}
{{- if or .Values.azureConfig.value .Values.azureConfig.secretName -}}true{{- end -}}
{{- end -}}

{{- define "ccm.configSecret" -}}
{{- .Values.azureConfig.secretName | default "cloud-controller-manager-azure-config" -}}
{{- end -}}

{{/* Where a Secret with azure.json is mounted. */}}
{{- define "ccm.configFolder" -}}/etc/azure-config{{- end -}}

{{/* --cloud-config of the Deployment. */}}
{{- define "ccm.cloudConfig" -}}
{{- if include "ccm.mountsConfig" . -}}
{{- include "ccm.configFolder" . }}/azure.json
{{- else -}}
{{- .Values.cloudControllerManager.cloudConfig -}}
{{- end -}}
{{- end -}}

{{/* Whether one of the files is below /etc/kubernetes of the host. */}}
{{- define "ccm.needsEtcKubernetes" -}}
{{- range . -}}
{{- if hasPrefix "/etc/kubernetes" (toString .) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* Name resolution of a pod. In: the values of its program. */}}
{{- define "ccm.names" -}}
dnsPolicy: {{ .dnsPolicy }}
{{- with .dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .hostAliases }}
hostAliases: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
The file of alerts for this release: its cluster label, its job, its Lease, its links to runbooks. Alerts about the leader are left out
without leader election.
*/}}
{{- define "ccm.alerts" -}}
{{- $monitoring := .Values.monitoring -}}
{{- $base := trimSuffix "/" $monitoring.rules.runbookBaseUrl -}}
{{- $lease := printf "name=%q" (include "ccm.leaseName" .) -}}
{{- $elects := include "ccm.isTrue" .Values.cloudControllerManager.leaderElect -}}
{{- $file := fromYaml (.Files.Get "files/alerts.yaml") -}}
{{- range $group := $file.groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- if or $elects (not (contains "leader_election_master_status" $rule.expr)) -}}
{{- $expr := regexReplaceAll "\\bcluster\\b" $rule.expr $monitoring.clusterLabel -}}
{{- $expr = $expr | replace "name=\"cloud-controller-manager\"" $lease | replace "job=\"cloud-controller-manager\"" $monitoring.selector -}}
{{- $_ := set $rule "expr" $expr -}}
{{- $annotations := $rule.annotations -}}
{{- $_ := set $annotations "summary" ($annotations.summary | replace "$labels.cluster " (printf "$labels.%s " $monitoring.clusterLabel)) -}}
{{- if $base -}}
{{- $page := $rule.alert | trimPrefix "CloudControllerManager" | kebabcase -}}
{{- $_ := set $annotations "runbook_url" (printf "%s/%s.md" $base $page) -}}
{{- $_ := unset $annotations "runbook" -}}
{{- end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- $_ := set $group "rules" $rules -}}
{{- end -}}
{{- toYaml $file -}}
{{- end -}}
